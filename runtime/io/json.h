/* The memory of a JSON text, known before its value is made: the header of a file may hold anything. */
#ifndef WN_IO_JSON_H
#define WN_IO_JSON_H
#include <stdint.h>

/* Returns an upper bound of the bytes that the value of a text of n letters takes in Lua beside its letters.
 * Allocates nothing and reads the text once. A text that is no JSON has a bound too. */
double wn__json_cost(const char *text, int64_t n);
#endif
