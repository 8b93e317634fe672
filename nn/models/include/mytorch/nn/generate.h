// Text generation with language models.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/kv_cache.h"
#include "mytorch/nn/module.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

// Functions of logits (N, V), which return logits in float32, or float64 for float64. Excluded
// tokens get -infinity. Each throws Error(kValue) for an option outside its range.
namespace logits {

// Divides the positive logits of the tokens `ids` (N, T) by `penalty`, and multiplies the negative
// ones by it (Keskar et al., "CTRL: a conditional transformer language model for controllable
// generation", 2019). Each token counts once.
Tensor repetition_penalty(const Tensor& logits, const Tensor& ids, double penalty);
// Divides by `temperature`, a positive number.
Tensor temperature(const Tensor& logits, double temperature);
// Keeps the k largest logits, and those equal to the smallest of them.
Tensor top_k(const Tensor& logits, int64_t k);
// Keeps the fewest tokens whose probabilities add up to at least p, the most likely first (Holtzman
// et al., "The curious case of neural text degeneration", ICLR 2020). Keeps at least one.
Tensor top_p(const Tensor& logits, double p);
// Keeps the tokens whose probability is at least p times that of the most likely one (Nguyen et
// al., "Min-p sampling", 2024).
Tensor min_p(const Tensor& logits, double p);
// Draws a token from the softmax of each row. Returns (N), int64. Throws Error(kValue) if a row has
// a NaN, +infinity, or nothing but -infinity.
Tensor sample(const Tensor& logits, std::optional<Generator> generator = {});

}  // namespace logits

using TokenLists = std::vector<std::vector<int64_t>>;

struct GenerateArgs {
  int64_t max_new_tokens = 20;
  // 0 takes the most likely token. Otherwise tokens are drawn, after the functions of `logits` in
  // the order of the options: repetition penalty, temperature, top-k, top-p, min-p.
  double temperature = 0;
  double repetition_penalty = 1;  // of the tokens of the prompt and the new tokens; 1 for none
  int64_t top_k = 0;              // 0 for all
  double top_p = 1;
  double min_p = 0;
  std::vector<int64_t> stop_ids = {};  // any of them ends a sequence, as its last token
  std::optional<Generator> generator = {};
  // Changes the logits (N, V) of the next tokens first, given the prompts and new tokens so far.
  std::function<Tensor(const Tensor& logits, const TokenLists& tokens)> process = nullptr;
  // Receives each new token, in the order of steps, then of sequences. Returns whether the sequence
  // goes on.
  std::function<bool(int64_t sequence, int64_t token)> on_token = nullptr;
  // The model's device: by default that of a Module's first parameter, or the CPU.
  std::optional<Device> device = {};
};

namespace detail {

using CachedModel = std::function<Tensor(const Tensor& ids, KVCache& cache)>;
TokenLists generate_with(const CachedModel& model, const TokenLists& prompts, KVCache& cache,
                         const GenerateArgs& options);
// Returns the options with the device of the model. Throws Error(kValue) in training mode.
GenerateArgs options_for(const Module& model, GenerateArgs options);

// Whether a model takes the cache by reference. operator() of modules takes anything.
template <class Model>
constexpr bool takes_reference() {
  if constexpr (std::is_base_of_v<Module, Model>) {
    return requires(Model & model, const Tensor& ids, KVCache& cache) {
      model.forward(ids, cache);
    };
  } else {
    return std::is_invocable_v<Model&, const Tensor&, KVCache&>;
  }
}

}  // namespace detail

// Continues each prompt by at most `max_new_tokens` tokens, and returns the new tokens. The cache
// has a sequence for each prompt, and is reset first. Records no gradients.
//
// The model is called with the new ids (N, L), int64, and the cache, as a reference or a pointer.
// It calls `attend` of the cache in each layer, and returns logits of all tokens (N, L, V), or of
// the last ones (N, 1, V): `head(cache.last(x))`. Shorter prompts are padded after their end, with
// id 0; causal attention never sees the padding.
//
//   nn::KVCache cache(layers, 2, 512);
//   nn::generate(model, {{5, 8, 2}, {7}}, cache, {.max_new_tokens = 50, .temperature = 0.8});
//
// Throws Error(kValue) if the model is a Module in training mode, a prompt is empty, or the longest
// prompt and max_new_tokens exceed the capacity of the cache.
template <class Model>
TokenLists generate(Model&& model, const TokenLists& prompts, KVCache& cache,
                    const GenerateArgs& options = {}) {
  using M = std::decay_t<Model>;
  if constexpr (std::is_base_of_v<detail::AnyHolder, M>) {
    return generate(*model, prompts, cache, options);
  } else {
    const auto call = [&](const Tensor& ids, KVCache& c) {
      if constexpr (detail::takes_reference<M>()) {
        return model(ids, c);
      } else {
        return model(ids, &c);  // generate calls model(ids, cache) with a KVCache& or KVCache*
      }
    };
    if constexpr (std::is_base_of_v<Module, M>) {
      return detail::generate_with(call, prompts, cache, detail::options_for(model, options));
    } else {
      return detail::generate_with(call, prompts, cache, options);
    }
  }
}

}  // namespace mytorch::nn
