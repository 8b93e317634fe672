// Mistakes that do not compile, each with a part of the compiler's message.
#include "mytorch/mytorch.h"

using namespace mytorch;

struct Attention : nn::Module {
  Tensor forward(Tensor x, Tensor y) { return x + y; }
};

void mistakes(Tensor x, Attention attention) {
  x.sum(true);                    // bool, char or floating-point value is no list
  x.std(false);                   // write {} to leave the argument out
  x.reshape('a');                 // write 1, or name another argument
  x.mean(0.5);                    // IntList(NotAnInteger) = delete
  x.reshape({true, false});       // std::initializer_list<NotAnInteger>) = delete
  cat({0, 1});                    // write {tensor({0.0, 1})}
  x.index({0, 1.5});              // give an integer, bool, Slice, None, "..." or Tensor
  x.index_put_({nullptr, 1}, 2);  // use None
  x = 3.0;                        // use fill_(value), or scalar_tensor(value)
  attention(x, x);                // derive the class from nn::Callable<Class>
}
