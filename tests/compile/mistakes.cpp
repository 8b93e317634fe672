// Mistakes that do not compile, each with a part of the compiler's message.
#include "mytorch/mytorch.h"

using namespace mytorch;

struct Attention : nn::Module {
  Tensor forward(Tensor x, Tensor y) { return x + y; }
};

void mistakes(Tensor x, Attention attention, nn::Module& module) {
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

  nn::Linear(nn::Conv2dOptions(1, 2, 3));  // these are the options of another layer
  nn::Conv2dOptions(1, 2, 3).strid(2);     // did you mean 'stride'
  nn::LinearOptions(3, 4).stride(2);       // 'stride' is not a member of 'mytorch::nn::LinearArgs'
  nn::Conv2d(1, 2, 3, {.strid = 2});  // Conv2d(int, int, int, <brace-enclosed initializer list>)
  nn::Linear(3, 4)->wight.sum();      // did you mean 'weight'
  nn::functional::elu(x, nn::LeakyReLUOptions());  // these are the options of another function
  nn::Sequential().push_back(3);                // give a module, a shared_ptr to one, or a function
  module.register_forward_hook([](Tensor) {});  // a forward hook takes (nn::Module& module, const
  nn::clone(x);                                 // clone takes a module
  nn::Linear fc = new nn::Linear(3, 4);         // conversion from 'mytorch::nn::Linear*'
}
