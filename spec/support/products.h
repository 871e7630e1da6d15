/* Answers what __builtin_cpu_supports is asked in products.c's library; every file of it sees this declaration
 * first. */
int spec_supports(const char *name);
