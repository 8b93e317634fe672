#include "sample.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"
#include "mytorch/nn/generate.h"
#include "mytorch/nn/models/gpt2.h"
#include "vocabulary.h"

namespace nn = mytorch::nn;

void sample(const SampleOptions& options) {
  if (options.threads > 0) mytorch::set_num_threads(options.threads);
  mytorch::manual_seed(options.seed);
  mytorch::load_default_backends();
  const mytorch::Device device(options.device);
  const auto vocabulary = load_vocabulary(options.run + "/vocabulary");
  auto model = nn::models::GPT2LMHeadModel::from_pretrained(options.run, {.device = device});
  const int64_t context = model.config().n_positions;

  std::vector<int64_t> tokens = vocabulary->encode(options.prompt);
  if (tokens.empty()) tokens.push_back(0);

  std::fputs(options.prompt.c_str(), stdout);
  nn::KVCache cache(model.config().n_layer, 1, context);
  // The positions end at the context. Then a new cache begins with the later half of it.
  for (int64_t left = options.length; left > 0;) {
    const auto known = static_cast<int64_t>(tokens.size());
    const int64_t kept = std::min(known, std::max<int64_t>(context / 2, 1));
    const std::vector<int64_t> prompt(tokens.end() - kept, tokens.end());
    const int64_t count = std::min(left, context - kept);
    nn::generate(model, {prompt}, cache,
                 {.max_new_tokens = count,
                  .temperature = options.temperature,
                  .top_k = options.top_k,
                  .top_p = options.top_p,
                  .on_token =
                      [&](int64_t /*sequence*/, int64_t token) {
                        tokens.push_back(token);
                        std::fputs(vocabulary->decode({token}).c_str(), stdout);
                        std::fflush(stdout);
                        return true;
                      },
                  .device = device});
    left -= count;
  }
  std::printf("\n");
}
