// Sentence embeddings: vectors of sentences, which are close if their meanings are.
//
//   embed MODEL FILE --query "How do I train a network?"     the lines of FILE that are closest
//   embed MODEL FILE --out embeddings.safetensors            the embedding of each line
//
// MODEL is the folder of a BERT sentence encoder; scripts/get-minilm installs all-MiniLM-L6-v2.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"
#include "mytorch/nn/models/bert.h"
#include "wordpiece.h"

using mytorch::Tensor;
namespace nn = mytorch::nn;

namespace {

struct Options {
  std::string model, file, query, out;
  size_t batch = 32;
  size_t longest = 256;  // tokens
  int64_t best = 5;
  int64_t repeat = 0;
  int threads = 0;
  std::string device = "cpu";
};

class Encoder {
 public:
  explicit Encoder(const Options& options)
      : options_(options),
        tokens_(options.model + "/vocab.txt"),
        model_(nn::models::BertModel::from_pretrained(options.model, {.device = options.device},
                                                      /*add_pooling_layer=*/false)) {
    options_.longest =
        std::min(options.longest, static_cast<size_t>(model_.config().max_position_embeddings));
  }

  // Returns a vector of length 1 for each text, (texts, width), on the CPU. Texts of similar
  // lengths share a batch, so that little of it is padding.
  Tensor operator()(const std::vector<std::string>& texts) {
    const mytorch::NoGradGuard no_grad;
    std::vector<std::vector<int64_t>> ids;
    for (const std::string& text : texts) ids.push_back(tokens_.encode(text, options_.longest));
    std::vector<int64_t> order(texts.size());
    std::iota(order.begin(), order.end(), 0);
    const auto length = [&](int64_t i) { return ids[static_cast<size_t>(i)].size(); };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return length(a) > length(b); });
    std::vector<Tensor> embeddings;
    for (size_t first = 0; first < order.size(); first += options_.batch) {
      const size_t count = std::min(options_.batch, order.size() - first);
      const size_t longest = length(order[first]);
      std::vector<int64_t> padded(count * longest), mask(count * longest);
      for (size_t i = 0; i < count; ++i) {
        const auto& row = ids[static_cast<size_t>(order[first + i])];
        std::copy(row.begin(), row.end(),
                  padded.begin() + static_cast<std::ptrdiff_t>(i * longest));
        std::fill_n(mask.begin() + static_cast<std::ptrdiff_t>(i * longest), row.size(), 1);
      }
      embeddings.push_back(embed(on_device(padded, count), on_device(mask, count),
                                 /*has_padding=*/length(order[first + count - 1]) != longest));
    }
    // Back to the order of the texts.
    const Tensor sorted = mytorch::cat(embeddings), places = mytorch::tensor(order);
    return mytorch::empty_like(sorted).index_copy_(0, places, sorted);
  }

 private:
  Tensor on_device(const std::vector<int64_t>& values, size_t rows) const {
    return mytorch::tensor(values).view({static_cast<int64_t>(rows), -1}).to(options_.device);
  }
  Tensor embed(const Tensor& ids, const Tensor& mask, bool has_padding) {
    nn::models::BertInputs inputs;
    if (has_padding) inputs.attention_mask = mask;
    const Tensor hidden = model_(ids, inputs).last_hidden_state;
    const Tensor pooled = nn::models::mean_pooling(hidden, mask);
    return nn::functional::normalize(pooled).to(mytorch::kCPU);
  }

  Options options_;
  WordPiece tokens_;
  nn::models::BertModel model_;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.empty()) {
    throw mytorch::Error(mytorch::ErrorCode::kIo, "file " + path + " cannot be read or is empty");
  }
  return lines;
}

void run(const Options& options) {
  if (options.threads > 0) mytorch::set_num_threads(options.threads);
  mytorch::load_default_backends();
  const std::vector<std::string> lines = lines_of(options.file);
  Encoder encoder(options);
  const Tensor embeddings = encoder(lines);
  if (!options.out.empty()) nn::save_safetensors(options.out, {{"embeddings", embeddings}});
  for (int64_t i = 0; i < options.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    encoder(lines);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("sentences/s %.1f\n", static_cast<double>(lines.size()) / seconds.count());
    std::fflush(stdout);
  }
  if (options.query.empty()) return;
  const Tensor cosines = embeddings.mv(encoder({options.query})[0]);
  const int64_t best = std::min(options.best, static_cast<int64_t>(lines.size()));
  const auto [values, places] = mytorch::topk(cosines, best);
  for (int64_t i = 0; i < best; ++i) {
    const auto place = static_cast<size_t>(places[i].item<int64_t>());
    std::printf("%.3f  %s\n", values[i].item<double>(), lines[place].c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Sentence embeddings with a BERT model.", "embed");
  app.add_option("model", options.model, "Folder of the model")->required();
  app.add_option("file", options.file, "Sentences, one in each line")->required();
  app.add_option("--query", options.query, "Print the lines that are closest to this text");
  app.add_option("--best", options.best, "Lines to print")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--out", options.out, "Write the embeddings to this safetensors file");
  app.add_option("--batch", options.batch, "Sentences of a batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--longest", options.longest, "Tokens at which sentences are cut off")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "Embed as often again, and print the speed")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--device", options.device, "Device: cpu, cuda, ...")->capture_default_str();
  app.add_option("--threads", options.threads, "Number of threads (default: all processors)")
      ->check(CLI::Range(1, 4096));
  try {
    app.parse(argc, argv);
    run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "embed: %s\n", error.what());
    return 1;
  }
  return 0;
}
