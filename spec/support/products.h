/* Seen first by every file of products.c's library: what __builtin_cpu_supports stands for there. */
int spec_supports(const char *name);
