// A feed-forward layer of several experts, of which each token takes few.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/transformer.h"

namespace mytorch::nn {

struct MixtureOfExpertsArgs {
  int64_t top_k = 2;  // experts of a token
  TransformerActivation activation = "gelu";
  // Whether the activation's result is multiplied by a second projection, as in Llama and Mixtral.
  bool gated = false;
  // Whether the probabilities of a token's experts are divided by their sum.
  bool normalize = true;
  // An expert takes at most capacity_factor * tokens * top_k / experts of a rank's tokens, rounded
  // up: first choices before second ones, and earlier tokens before later ones. A token that finds
  // no place gets nothing of that expert. 0: experts take all tokens.
  double capacity_factor = 0;
  double balance_loss = 0.01;  // the weights of two terms in auxiliary_loss()
  double z_loss = 0;
  // Over its ranks the experts are divided, and the tokens, too. Default: all are here.
  distributed::Group group = {};
};

// Computes, for each token of (..., width), the sum over its top_k most probable experts of
// probability * expert(token), where a router, a Linear without bias, gives the logits, and
// expert(x) = activation(x @ up.mT) @ down.mT. up is (experts / ranks, hidden, width), with `gated`
// (experts / ranks, 2 * hidden, width): the activation's rows, then the others; down is (experts /
// ranks, width, hidden). They are this rank's parts of what one rank would have, if the default
// generator is in the same state on all ranks. Probabilities are float32.
//
//   nn::MixtureOfExperts experts(64, 256, 8, {.group = mesh.group("ep")});
//   const Tensor y = experts(x);  // before auxiliary_loss(): C++ leaves the order of operands open
//   Tensor loss = cross_entropy(head(x + y), target) + experts.auxiliary_loss();
//
// Over a group, each rank passes its own tokens, any number of them. They are sent to the ranks of
// their experts and back (all_to_all_v); the host reads how many. What backward computes is, as for
// the collective operators, the gradient of the sum of all ranks' losses: complete for the experts,
// and a rank's part for the router, as for all parameters that ranks share. If losses are means
// over the same number of tokens on each rank, divide them by the ranks, and add up the gradients
// of shared parameters (sum_gradients_of_ranks).
//
// (Lepikhin et al., "GShard", 2020; Fedus et al., "Switch Transformers", 2021, for the first term
// of the loss; Zoph et al., "ST-MoE", 2022, for the second.)
class MixtureOfExperts final : public Layer<MixtureOfExperts> {
 public:
  using Layer::Layer;
  // Throws Error(kValue) if top_k exceeds the experts, or the ranks do not divide them.
  MixtureOfExperts(int64_t width, int64_t hidden, int64_t experts,
                   MixtureOfExpertsArgs options = {});
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  // ---- of the last forward ----
  // balance_loss * experts * sum over experts of (its share of the choices, on all ranks) * (its
  // mean probability on this rank), which is 1 * balance_loss for tokens spread evenly, plus z_loss
  // * the mean of logsumexp(logits) squared. Its mean over the ranks is the loss of one rank with
  // all tokens, if they have the same number. Throws Error(kValue) before the first forward.
  Tensor auxiliary_loss() const;
  // How many of this rank's tokens chose each expert, and how many of the choices were dropped.
  const std::vector<int64_t>& tokens_of_experts() const { return chosen_; }
  int64_t dropped() const { return dropped_; }

  Linear router{nullptr};
  Tensor up;
  Tensor down;

 private:
  // Of tokens in the order of this rank's experts.
  Tensor compute(const Tensor& tokens, const std::vector<int64_t>& rows);
  Tensor compute_on_ranks(const Tensor& tokens, const std::vector<int64_t>& rows);

  int64_t width_ = 0, hidden_ = 0, experts_ = 0;
  MixtureOfExpertsArgs options_;
  Tensor auxiliary_loss_;
  std::vector<int64_t> chosen_;
  int64_t dropped_ = 0;
};

}  // namespace mytorch::nn
