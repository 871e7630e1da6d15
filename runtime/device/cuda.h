/* Declares the text about CUDA that scripts see (cuda.c). */
#ifndef WN_DEVICE_CUDA_H
#define WN_DEVICE_CUDA_H

/* Returns one line: the GPU, its driver and the library that was opened, or why there is none. */
const char *wn__cuda_text(void);
#endif
