/* Changes from one stack to another, for the threads of a block: the saved registers and a return address on x86-64
 * and aarch64, ucontext elsewhere. Under AddressSanitizer every change is told to it. */
#ifndef WN_SIM_FIBER_H
#define WN_SIM_FIBER_H
#include <stddef.h>
#include <stdint.h>

enum { WN_SIM_STACK = 256 << 10 }; /* bytes of a fiber's stack */

#if defined(__x86_64__)
extern "C" void wn__sim_switch(void **from, void *to);
asm(".text\n.globl wn__sim_switch\n.hidden wn__sim_switch\n.type wn__sim_switch,@function\nwn__sim_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size wn__sim_switch,.-wn__sim_switch\n");

/* Returns the stack pointer of a fiber that will begin in `entry`. bottom: the lowest byte of its stack. */
static inline void *wn__sim_fiber(char *bottom, void (*entry)(void))
{
    uintptr_t top = ((uintptr_t)(bottom + WN_SIM_STACK) & ~(uintptr_t)15) - 8;
    void **at = (void **)top;
    *at = NULL;
    *--at = (void *)entry;
    for (int i = 0; i < 6; i++) *--at = NULL;
    return at;
}
#elif defined(__aarch64__)
extern "C" void wn__sim_switch(void **from, void *to);
asm(".text\n.globl wn__sim_switch\n.hidden wn__sim_switch\n.type wn__sim_switch,%function\nwn__sim_switch:\n"
    "stp x19,x20,[sp,#-160]!\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
    "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp d14,d15,[sp,#144]\nldp d12,d13,[sp,#128]\nldp d10,d11,[sp,#112]\nldp d8,d9,[sp,#96]\n"
    "ldp x29,x30,[sp,#80]\nldp x27,x28,[sp,#64]\n"
    "ldp x25,x26,[sp,#48]\nldp x23,x24,[sp,#32]\nldp x21,x22,[sp,#16]\nldp x19,x20,[sp],#160\nret\n"
    ".size wn__sim_switch,.-wn__sim_switch\n");

/* Returns the stack pointer of a fiber that will begin in `entry`: 20 saved registers, the return address in x30. */
static inline void *wn__sim_fiber(char *bottom, void (*entry)(void))
{
    enum { SAVED = 20, RETURN = 11 };
    void **at = (void **)((uintptr_t)(bottom + WN_SIM_STACK) & ~(uintptr_t)15) - SAVED;
    for (int i = 0; i < SAVED; i++) at[i] = NULL;
    at[RETURN] = (void *)entry;
    return at;
}
#else
#include <ucontext.h>
static inline void wn__sim_switch(void **from, void *to)
{
    ucontext_t *me = new ucontext_t;
    *from = me;
    swapcontext(me, (ucontext_t *)to);
    delete me;
}
static inline void *wn__sim_fiber(char *bottom, void (*entry)(void))
{
    ucontext_t *c = new ucontext_t;
    getcontext(c);
    c->uc_stack.ss_sp = bottom;
    c->uc_stack.ss_size = WN_SIM_STACK;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
    return c;
}
#endif
#endif
