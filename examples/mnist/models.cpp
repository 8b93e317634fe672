#include "models.h"

#include <optional>
#include <utility>
#include <vector>

using mytorch::Device;
using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace optim = mytorch::optim;

namespace {

// Subtracts the mean of the pixels, without which all inputs of the first layer would be positive.
Tensor centered(const Tensor& images) { return images - 0.1307; }

// 784-32-10, trained with plain gradient descent to output 1 for the right class and 0 for the
// others. At high learning rates most hidden units would die in the first steps, so the rate warms
// up; then it falls to zero.
class Mlp final : public Task {
 public:
  explicit Mlp(Device device) : one_hot_(mytorch::eye(10).to(device)) {
    nn::init::kaiming_normal_(network_.at<nn::Linear>(2).weight,
                              {.nonlinearity = nn::init::Nonlinearity::kReLU});
    network_.to(device);
  }

  nn::Module& network() override { return network_; }
  Tensor loss(const Tensor& images, const Tensor& labels) override {
    // Returns one-hot labels: rows of the identity matrix.
    return mytorch::mse_loss(network_(images), one_hot_.index_select(0, labels));
  }
  void begin(double lr, int64_t steps) override {
    sgd_.emplace(network_.parameters(), optim::SGDArgs{.lr = lr});
    const int64_t rising = (3 * steps + 9) / 10, falling = steps - rising + 1;
    schedule_.emplace(*sgd_, std::vector<std::pair<optim::LRCurve, int64_t>>{
                                 {optim::curves::linear(0.02, 1, rising), rising},
                                 {optim::curves::linear(1, 0, falling), falling}});
  }
  void step() override {
    sgd_->step();
    sgd_->zero_grad();
    schedule_->step();
  }

 private:
  nn::Sequential network_{centered, nn::Flatten(), nn::Linear(784, 32), nn::ReLU(),
                          nn::Linear(32, 10)};
  Tensor one_hot_;
  std::optional<optim::SGD> sgd_;
  std::optional<optim::SequentialLR> schedule_;
};

// Two convolutions and two linear layers, trained with cross entropy. A single cycle of the
// learning rate makes a few epochs sufficient.
class Cnn final : public Task {
 public:
  explicit Cnn(Device device) { network_.to(device); }

  nn::Module& network() override { return network_; }
  Tensor loss(const Tensor& images, const Tensor& labels) override {
    return mytorch::cross_entropy(network_(images), labels);
  }
  void begin(double lr, int64_t steps) override {
    adam_.emplace(network_.parameters(), optim::AdamWArgs{.lr = lr});
    schedule_.emplace(*adam_, lr, steps);
    left_ = steps;
  }
  void step() override {
    adam_->step();
    adam_->zero_grad();
    if (--left_ > 0) schedule_->step();
  }

 private:
  nn::Sequential network_{nn::Conv2d(1, 16, 3),  nn::ReLU(),           nn::MaxPool2d(2),
                          nn::Conv2d(16, 32, 3), nn::ReLU(),           nn::MaxPool2d(2),
                          nn::Flatten(),         nn::Linear(800, 128), nn::ReLU(),
                          nn::Dropout(0.25),     nn::Linear(128, 10)};
  std::optional<optim::AdamW> adam_;
  std::optional<optim::OneCycleLR> schedule_;
  int64_t left_ = 0;
};

}  // namespace

std::vector<std::string> model_names() { return {"mlp", "cnn"}; }

Recipe recipe_of(const std::string& model) {
  return model == "mlp" ? Recipe{.epochs = 10, .lr = 4.0} : Recipe{.epochs = 5, .lr = 0.004};
}

std::unique_ptr<Task> make_task(const std::string& model, Device device) {
  if (model == "mlp") return std::make_unique<Mlp>(device);
  return std::make_unique<Cnn>(device);
}
