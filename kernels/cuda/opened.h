/* Libraries of NVIDIA that are opened at run time and called through own declarations: cublaslt.cu and cudnn.cu take
 * their functions by this. */
#ifndef WN_CUDA_OPENED_H
#define WN_CUDA_OPENED_H
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A function of a library, and where its address goes. */
struct wn__opened_function {
    const char *name;
    void **at;
};

/* Opens the library of a name, or the simulated part where the name is "simulated", and takes n functions. Returns
 * whether all are there; *lacks becomes the name of the first that is not, and NULL where there is no such library.
 * simulated: returns a function by its name; NULL on a real GPU. */
static inline int32_t wn__opened_take(const char *name, void *(*simulated)(const char *name),
                                      const struct wn__opened_function *f, size_t n, const char **lacks)
{
    const int32_t is_simulated = simulated != NULL && strcmp(name, "simulated") == 0;
    void *library = is_simulated ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    *lacks = NULL;
    if (library == NULL && !is_simulated) return 0;
    for (size_t i = 0; i < n; i++) {
        *f[i].at = is_simulated ? simulated(f[i].name) : dlsym(library, f[i].name);
        if (*f[i].at == NULL) {
            *lacks = f[i].name;
            return 0;
        }
    }
    return 1;
}
#endif
