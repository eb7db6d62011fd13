/* swapcontext and setcontext without the C library's system call for the signal mask, which takes
   most of the time of a launch in the deterministic engine. Where a program includes this, in one
   of its files, they replace the library's. They run what makecontext has prepared, too: a function
   without arguments, which has to end with setcontext, since only the library's code follows
   uc_link. */
#ifndef FLEET_TEST_CONTEXTS_H
#define FLEET_TEST_CONTEXTS_H

#if defined(__linux__) && defined(__x86_64__) && defined(__LP64__)
/* Offsets into ucontext_t: r12 to r15 at 72 to 96, rbp 120, rbx 128, rsp 160, rip 168. */
__asm__(".text\n"
        ".globl swapcontext, setcontext\n"
        ".type swapcontext, @function\n"
        ".type setcontext, @function\n"
        "swapcontext:\n"
        "    movq %r12, 72(%rdi)\n"
        "    movq %r13, 80(%rdi)\n"
        "    movq %r14, 88(%rdi)\n"
        "    movq %r15, 96(%rdi)\n"
        "    movq %rbp, 120(%rdi)\n"
        "    movq %rbx, 128(%rdi)\n"
        "    leaq 8(%rsp), %rcx\n" /* as after the return */
        "    movq %rcx, 160(%rdi)\n"
        "    movq (%rsp), %rcx\n"
        "    movq %rcx, 168(%rdi)\n"
        "    movq %rsi, %rdi\n"
        "setcontext:\n"
        "    movq 72(%rdi), %r12\n"
        "    movq 80(%rdi), %r13\n"
        "    movq 88(%rdi), %r14\n"
        "    movq 96(%rdi), %r15\n"
        "    movq 120(%rdi), %rbp\n"
        "    movq 128(%rdi), %rbx\n"
        "    movq 160(%rdi), %rsp\n"
        "    xorl %eax, %eax\n"
        "    jmpq *168(%rdi)\n");
#endif

#endif
