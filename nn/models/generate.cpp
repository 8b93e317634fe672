#include "mytorch/nn/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/argmax.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/ge.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/multinomial.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/topk.h"
#include "mytorch/ops/where.h"
#include "nn/functional/named.h"
#include "nn/functional/options.h"
#include "nn/modules/names.h"

namespace mytorch::nn {
namespace logits {
namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

Tensor checked(const char* op, const Tensor& logits) {
  if (logits.dim() != 2 || !logits.is_floating_point()) {
    fail(ErrorCode::kShape, "[", op, "] logits are ", dtype_name(logits.dtype()), " of shape ",
         shape_str(logits.sizes()), ": give floating-point numbers of shape (sequences, tokens)");
  }
  return logits.dtype() == kFloat64 ? logits : logits.to(kFloat32);
}

void check_fraction(const char* op, double p) {
  if (!(p >= 0 && p <= 1)) fail(ErrorCode::kValue, "[", op, "] p is ", p, ": give 0 to 1");
}

void check_positive(const char* op, const char* name, double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    fail(ErrorCode::kValue, "[", op, "] ", name, " is ", value, ": give a positive number");
  }
}

}  // namespace

Tensor repetition_penalty(const Tensor& logits, const Tensor& ids, double penalty) {
  const Tensor wide = checked("repetition_penalty", logits);
  check_positive("repetition_penalty", "penalty", penalty);
  if (ids.dim() != 2 || ids.size(0) != logits.size(0)) {
    fail(ErrorCode::kShape, "[repetition_penalty] ids have shape ", shape_str(ids.sizes()),
         ": give (", logits.size(0), ", length)");
  }
  return named("repetition_penalty", [&] {
    const Tensor found = gather(wide, 1, ids);
    return scatter(wide, 1, ids, where(lt(found, 0), mul(found, penalty), div(found, penalty)));
  });
}

Tensor temperature(const Tensor& logits, double temperature) {
  const Tensor wide = checked("temperature", logits);
  check_positive("temperature", "temperature", temperature);
  return div(wide, temperature);
}

Tensor top_k(const Tensor& logits, int64_t k) {
  Tensor wide = checked("top_k", logits);
  check_at_least("top_k", 1, {{"k", k}});
  if (k >= wide.size(1)) return wide;
  const Tensor smallest = std::get<0>(topk(wide, k, 1)).narrow(1, k - 1, 1);
  return wide.masked_fill(lt(wide, smallest), kExcluded);
}

Tensor top_p(const Tensor& logits, double p) {
  Tensor wide = checked("top_p", logits);
  check_fraction("top_p", p);
  if (p == 1 || wide.size(1) == 0) return wide;
  const auto [sorted, order] = sort(wide, /*stable=*/true, 1, /*descending=*/true);
  const Tensor probabilities = softmax(sorted, 1);
  // The probability of all tokens that are more likely.
  const Tensor before = sub(cumsum(probabilities, 1), probabilities);
  const Tensor excluded = ge(before, p);
  excluded.narrow(1, 0, 1).fill_(false);
  return scatter(wide, 1, order, sorted.masked_fill(excluded, kExcluded));
}

Tensor min_p(const Tensor& logits, double p) {
  Tensor wide = checked("min_p", logits);
  check_fraction("min_p", p);
  if (p == 0 || wide.size(1) == 0) return wide;
  const Tensor least = add(wide.amax({1}, true), std::log(p));
  return wide.masked_fill(lt(wide, least), kExcluded);
}

Tensor sample(const Tensor& logits, std::optional<Generator> generator) {
  const Tensor wide = checked("sample", logits);
  const Tensor probabilities = softmax(wide, 1);
  try {
    return multinomial(probabilities, 1, false, generator).squeeze(1);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kValue) throw;
    fail(
        ErrorCode::kValue,
        "[sample] a row of the logits has a NaN, +infinity, or nothing but -infinity: the model or "
        "a processor of logits made it");
  }
}

}  // namespace logits

namespace detail {
namespace {

void check(const TokenLists& prompts, const KVCache& cache, const GenerateArgs& options) {
  check_at_least("generate", 0,
                 {{"max_new_tokens", options.max_new_tokens}, {"top_k", options.top_k}});
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    fail(ErrorCode::kValue, "[generate] temperature is ", options.temperature,
         ": give a positive number, or 0 for the most likely token");
  }
  if (!(options.top_p >= 0 && options.top_p <= 1) || !(options.min_p >= 0 && options.min_p <= 1)) {
    fail(ErrorCode::kValue, "[generate] top_p is ", options.top_p, " and min_p ", options.min_p,
         ": give probabilities, from 0 to 1");
  }
  if (options.temperature == 0 &&
      (options.top_k > 0 || options.top_p < 1 || options.min_p > 0 || options.generator)) {
    fail(
        ErrorCode::kValue,
        "[generate] top_k, top_p, min_p and generator have no effect at temperature 0, which takes "
        "the most likely token: give a temperature, such as 1, or leave them out");
  }
  if (!(options.repetition_penalty > 0) || !std::isfinite(options.repetition_penalty)) {
    fail(ErrorCode::kValue, "[generate] repetition_penalty is ", options.repetition_penalty,
         ": give a positive number; 1 has no effect");
  }
  if (cache.batch_size() != static_cast<int64_t>(prompts.size())) {
    fail(ErrorCode::kShape, "[generate] the cache has ", cache.batch_size(), " sequences for ",
         prompts.size(), " prompts: make it with batch_size = ", prompts.size());
  }
  for (size_t n = 0; n < prompts.size(); ++n) {
    if (prompts[n].empty()) {
      fail(ErrorCode::kValue, "[generate] prompt ", n,
           " is empty: begin it with the token that begins a text");
    }
    // The last token is not fed.
    const int64_t longest = static_cast<int64_t>(prompts[n].size()) + options.max_new_tokens - 1;
    if (cache.num_layers() > 0 && longest > cache.capacity()) {
      fail(ErrorCode::kValue, "[generate] prompt ", n, " of ", prompts[n].size(), " tokens and ",
           options.max_new_tokens, " new ones need a cache of capacity ", longest, ", not ",
           cache.capacity());
    }
  }
}

// The rows as a matrix (N, T), where shorter ones are followed by `fill`, or by their last element.
Tensor matrix(const TokenLists& rows, std::optional<int64_t> fill, Device device) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  std::vector<int64_t> values;
  for (const auto& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
    values.insert(values.end(), width - row.size(), fill.value_or(row.empty() ? 0 : row.back()));
  }
  return tensor(values, kInt64)
      .view({static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)})
      .to(device);
}

// Returns the logits (N, V) of the tokens that follow.
Tensor next_logits(const CachedModel& model, const TokenLists& fed, KVCache& cache,
                   const GenerateArgs& options) {
  std::vector<int64_t> counts, expected;
  for (size_t n = 0; n < fed.size(); ++n) {
    counts.push_back(static_cast<int64_t>(fed[n].size()));
    expected.push_back(cache.lengths()[n] + (cache.num_layers() > 0 ? counts[n] : 0));
  }
  cache.set_counts(counts);
  const Tensor ids = matrix(fed, 0, options.device.value_or(kCPU));
  const Tensor all = model(ids, cache);
  if (cache.lengths() != expected) {
    fail(ErrorCode::kValue,
         "[generate] the model did not append its tokens to all layers of the cache: call "
         "cache.attend in each of the ",
         cache.num_layers(), " layers");
  }
  const int64_t batch = ids.size(0), length = ids.size(1);
  const bool last = all.defined() && all.dim() == 3 && all.size(0) == batch && all.size(1) == 1;
  if (last) return all.squeeze(1);
  if (!all.defined() || all.dim() != 3 || all.size(0) != batch || all.size(1) != length) {
    fail(ErrorCode::kShape, "[generate] the model returned ",
         all.defined() ? absl::StrCat("a tensor of shape ", shape_str(all.sizes()))
                       : "an undefined tensor",
         " for ids of shape ", shape_str(ids.sizes()), ": return logits of shape (", batch, ", ",
         length, ", V) or (", batch, ", 1, V)");
  }
  return cache.last(all).squeeze(1);
}

std::vector<int64_t> choose(Tensor scores, const TokenLists& tokens, const GenerateArgs& options) {
  if (options.process) {
    const int64_t batch = scores.size(0);
    scores = options.process(scores, tokens);
    if (!scores.defined() || scores.dim() != 2 || scores.size(0) != batch) {
      fail(ErrorCode::kShape, "[generate] process returned ",
           scores.defined() ? absl::StrCat("a tensor of shape ", shape_str(scores.sizes()))
                            : "an undefined tensor",
           ": return logits of shape (", batch, ", V)");
    }
  }
  if (options.repetition_penalty != 1) {
    scores = logits::repetition_penalty(scores, matrix(tokens, {}, scores.device()),
                                        options.repetition_penalty);
  }
  if (options.temperature == 0) return argmax(scores, 1).to_vector<int64_t>();
  scores = logits::temperature(scores, options.temperature);
  if (options.top_k > 0) scores = logits::top_k(scores, options.top_k);
  if (options.top_p < 1) scores = logits::top_p(scores, options.top_p);
  if (options.min_p > 0) scores = logits::min_p(scores, options.min_p);
  return logits::sample(scores, options.generator).to_vector<int64_t>();
}

}  // namespace

GenerateArgs options_for(const Module& model, GenerateArgs options) {
  if (model.training()) {
    fail(ErrorCode::kValue, "[generate] ", class_name(model),
         " is in training mode, in which dropout is random: call eval() first");
  }
  if (!options.device.has_value()) {
    const std::vector<Tensor> parameters = model.parameters();
    if (!parameters.empty()) options.device = parameters[0].device();
  }
  return options;
}

TokenLists generate_with(const CachedModel& model, const TokenLists& prompts, KVCache& cache,
                         const GenerateArgs& options) {
  check(prompts, cache, options);
  const InferenceMode inference;
  cache.reset();
  TokenLists made(prompts.size()), tokens = prompts, fed = prompts;
  size_t active = prompts.size();
  for (int64_t step = 0; step < options.max_new_tokens && active > 0; ++step) {
    const std::vector<int64_t> next =
        choose(next_logits(model, fed, cache, options), tokens, options);
    for (size_t n = 0; n < fed.size(); ++n) {
      if (fed[n].empty()) continue;  // has ended
      fed[n] = {next[n]};
      tokens[n].push_back(next[n]);
      made[n].push_back(next[n]);
      const auto& stops = options.stop_ids;
      const bool stopped = std::find(stops.begin(), stops.end(), next[n]) != stops.end();
      const bool goes_on = !options.on_token || options.on_token(static_cast<int64_t>(n), next[n]);
      if (stopped || !goes_on) {
        fed[n].clear();
        --active;
      }
    }
  }
  return made;
}

}  // namespace detail
}  // namespace mytorch::nn
