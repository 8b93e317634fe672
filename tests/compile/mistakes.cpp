// Mistakes that do not compile, each with a part of the compiler's message: after `//>` a part of
// GCC's first line, after `//` a part of any line. Where clang's message differs, it follows ` | `.
#include "mytorch/mytorch.h"

using namespace mytorch;
namespace F = mytorch::nn::functional;

struct Attention : nn::Module {
  Tensor forward(Tensor x, Tensor y) { return x + y; }
};
struct Net : nn::Module {
  Tensor forward(Tensor x) override { return x; }
};
struct NotAModule {};

void mistakes(Tensor x, Attention attention, nn::Module& module, Net net, NotAModule other) {
  x.sum(true);                    //> NotAnInteger = bool | NotAnInteger
  x.std(false);                   // write {} to leave the argument out
  x.reshape('a');                 // write 1, or name another argument
  x.mean(0.5);                    //> NotAnInteger = double | NotAnInteger
  x.reshape({true, false});       // std::initializer_list<NotAnInteger>) = delete
  cat({0, 1});                    // write {tensor({0.0, 1})} | NotATensor
  x.index({0, 1.5});              // give an integer, bool, Slice, None, "..." or Tensor
  x.index_put_({nullptr, 1}, 2);  // use None
  x = 3.0;                        // use fill_(value), or scalar_tensor(value)
  x.unsqueeze_(0);                // write x = x.unsqueeze(dim)
  x.resize_({3, 2});              // write x = x.reshape(sizes)
  x.t_();                         // write x = x.t()

  // creation
  randn(2, 3);               //> write randn({2, 3})
  zeros({2, 3}, "float32");  //> write a type as kFloat32

  // modules
  attention(x, x);                              //> derive the class from nn::Callable<Class>
  net(3);                                       //> write tensor(3) for a number
  nn::Linear missing_size(3);                   //> Linear takes two sizes
  nn::Sequential().push_back(3);                //> give a module, a shared_ptr
  nn::Sequential(nn::Linear(1, 2), other);      //> give a module, a shared_ptr
  nn::Sequential(nn::Linear(1, 2), &net);       //> give a module, a shared_ptr
  module.register_forward_hook([](Tensor) {});  //> a forward hook takes (nn::Module&
  nn::clone(x);                                 //> write x.clone() for a tensor
  nn::Linear fc = new nn::Linear(3, 4);         //> conversion from | no viable conversion
  nn::Linear(3, 4)->wight.sum();                //> did you mean 'weight'

  // options
  nn::Conv2d(1, 2, 3, {.strid = 2});              //> "stride, padding, | ConvArgs<2>
  nn::ConvTranspose1d(1, 2, 3, {.strid = 2});     //> output_padding, | ConvTransposeArgs<1>
  nn::Linear(3, 4, {.with_bias = false});         //> "bias" | LinearArgs
  nn::Linear(nn::Conv2dOptions(1, 2, 3));         //> these are the options of another layer
  nn::Conv2dOptions(1, 2, 3).strid(2);            //> did you mean 'stride'
  nn::LinearOptions(3, 4).stride(2);              // LinearArgs
  F::elu(x, nn::LeakyReLUOptions());              //> these are the options of another function
  F::cross_entropy(x, x, {.label_smooth = 0.1});  //> label_smoothing" | CrossEntropyArgs
  F::conv2d(x, x, {.strid = 2});                  //> stride, | ConvFuncArgs<2>
  F::batch_norm(x, x, x, {.train = true});        //> training, | BatchNormFuncArgs
  F::dropout2d(x, {.q = 0.1});                    //> "p, training, | DropoutFuncArgs
  F::softmax(x);                                  //> "dim, dtype" | SoftmaxFuncArgs

  // training
  nn::optim::SGD sgd(net, {.lr = 0.1});                           //> write model.parameters()
  nn::optim::SGD rate(net.parameters(), {.learning_rate = 0.1});  //> "lr, momentum, | SGDArgs
  nn::optim::AdamW betas(net.parameters(), {.beta1 = 0.9});       //> "lr, betas, | AdamWArgs
  nn::optim::Muon steps(net.parameters(), {.steps = 3});          //> ns_steps, | MuonArgs
  autograd::grad({x.sum()}, net);                     //> write grad({loss}, model.parameters())
  nn::data::DataLoader(x, {.batch_size = 4}).size();  //> write TensorDataset(x, y) for tensors
}
