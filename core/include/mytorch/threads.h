// The number of threads that CPU kernels may use.
#pragma once

namespace mytorch {

// Get and set the number of threads for kernels called by the current thread. The default is
// MYTORCH_NUM_THREADS, else OMP_NUM_THREADS, else the number of processors available to the
// process.
int num_threads();
inline int get_num_threads() { return num_threads(); }  // libtorch's name
void set_num_threads(int n);                            // throws Error(kValue) below 1

}  // namespace mytorch
