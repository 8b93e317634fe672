// Functions for the vectors of the processor in use.
#pragma once

// Compiles a function for several instruction sets, of which the dynamic linker takes one. Products
// are rounded before they are added on all of them, and thus in vectors as in single numbers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MYTORCH_FFTW_VECTORS                                                   \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), \
                 optimize("O3", "fp-contract=off")))
#else
#define MYTORCH_FFTW_VECTORS
#endif
