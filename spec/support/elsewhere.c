/* Calls a function of the library from a thread of its own: for specs of what is refused there. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

struct call {
    int32_t (*fn)(int64_t, int64_t, int64_t, int64_t);
    const char *(*message)(void);
    int64_t a[4];
    int32_t code;
    char text[1024];
};

static void *run(void *arg)
{
    struct call *c = arg;
    c->code = c->fn(c->a[0], c->a[1], c->a[2], c->a[3]);
    strncpy(c->text, c->message(), sizeof c->text - 1); /* the message belongs to the thread */
    return NULL;
}

int32_t elsewhere(struct call *c)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, c) != 0) return -1;
    return pthread_join(thread, NULL);
}
