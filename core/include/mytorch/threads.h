// How many threads CPU kernels may use.
#pragma once

namespace mytorch {

// Of the calling thread. The default is the number of processors that the process may run on, or
// MYTORCH_NUM_THREADS, or OMP_NUM_THREADS.
int num_threads();
void set_num_threads(int n);  // throws Error(kValue) below 1

}  // namespace mytorch
