/* What the value of a text of JSON takes, before it is made: a header of a file may say anything. */
#ifndef WN_IO_JSON_H
#define WN_IO_JSON_H
#include <stdint.h>

/* Bytes of Lua that the value of a text may take beside its letters, from above; allocates nothing, reads the text once.
 * What is no JSON has a number too. */
double wn__json_cost(const char *text, int64_t n);
#endif
