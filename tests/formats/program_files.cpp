// The files of programs, the texts of graphs, and arrays of NumPy.
#include <cstring>

#include "graph/capture/capture.h"
#include "graph/formats/parse.h"
#include "mytorch/compile.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/program.h"
#include "nn/serialize/npy.h"
#include "tests/formats/formats.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::testing {
namespace {

// Programs that train, with views, random numbers, lists, strings and memory of all kinds.
std::string saved_step(const std::string& folder) {
  const std::string path = folder + "/sample.mtg";
  nn::Sequential net(nn::Linear(4, 5), nn::Dropout(0.5), nn::GELU(), nn::Linear(5, 3));
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const Tensor seen = zeros({3, 2}).t();
  auto step = compile([&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor scores = net(x);
    const Tensor loss = nn::functional::cross_entropy(scores, y);
    loss.backward();
    optimizer.step();
    seen.select(0, 1).add_(scores.detach().sum(0));
    return std::tuple(loss.detach(), cat({scores.detach(), scores.detach().flip({1})}, 1));
  });
  step(ones({2, 4}), zeros({2}, kInt64));
  step.save(path, {.inputs = {"x", "y"}, .names = net.state_dict(), .metadata = {{"a", "b"}}});
  return read_file(path);
}
std::string saved_views(const std::string& folder) {
  const std::string path = folder + "/sample.mtg";
  const Tensor table = ones({4, 3}), mask = ones({3}, kBool);
  auto f = compile([&](const Tensor& x, const Tensor& index) {
    x.select(0, 1).mul_(2);
    const std::vector<Tensor> parts = split(x.transpose(0, 1), 1, 1);
    return std::tuple(where(mask, table.index_select(0, index) + 1, 0.5), parts[1] * parts[0],
                      gelu(x, "tanh").to(kFloat64).view({-1}));
  });
  f(ones({2, 3}), zeros({2}, kInt64));
  f.save(path);
  return read_file(path);
}

// A program whose sizes are functions of symbols.
std::string saved_sizes(const std::string& folder) {
  const std::string path = folder + "/sample.mtg";
  const NoGradGuard no_grad;
  auto f = compile(
      [&](const Tensor& x) {
        const int64_t n = x.size(0), t = x.size(1);
        const Tensor at = arange(t).unsqueeze(0).expand({n, t}).reshape({n * t});
        return std::tuple(x.slice(1, 0, t - 1).reshape({n * (t - 1)}) / static_cast<double>(n),
                          at + x.view({-1}) * (1.0f / static_cast<float>(t)));
      },
      CompileOptions{.dynamic_dims = {{0, 0, "n"}, {0, 1, "t"}}});
  for (const auto& [n, t] : {std::pair(2, 3), std::pair(4, 8), std::pair(7, 5)}) f(ones({n, t}));
  f.save(path);
  return read_file(path);
}

// A run of a program that was read ends in results or an error.
void run(Program program) {
  constexpr uint64_t kMost = 1 << 22;
  std::vector<graph::SizeSymbol> symbols;
  graph::parse_text(program.text(), nullptr, &symbols);
  for (int i = 0; i < 4; ++i) {
    // Some at other sizes than those of the file.
    for (graph::SizeSymbol& symbol : symbols) symbol.size += i % 2;
    for (const graph::GraphBuffer& buffer :
         graph::parse_text(program.text(), nullptr, &symbols).buffers) {
      if (buffer.bytes > kMost) return;
    }
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < program.inputs().size(); ++k) {
      const Program::Port& port = program.inputs()[k];
      std::vector<int64_t> sizes = port.sizes;
      for (const graph::SizeSymbol& symbol : symbols) {
        if (symbol.argument == k) sizes[symbol.dim] = symbol.size;
      }
      inputs.push_back(zeros(sizes, TensorOptions().dtype(port.dtype)));
    }
    const std::vector<Program::Port>& outputs = program.outputs(inputs);
    const std::vector<Tensor> results = program.run(inputs);
    require(results.size() == outputs.size(), "another number of results");
    for (size_t k = 0; k < results.size(); ++k) {
      require(!results[k].defined() || results[k].sizes() == IntList(outputs[k].sizes),
              "a result of another shape");
    }
  }
}

Format programs(const std::string& folder) {
  const std::vector<std::string> samples = {saved_views(folder), saved_step(folder),
                                            saved_sizes(folder)};
  uint64_t header = 0;
  std::memcpy(&header, samples[0].data(), sizeof(header));
  const std::string path = folder + "/model.mtg";
  return {"program", samples, sizeof(header) + header, [path](const std::string& bytes) {
            write_file(path, bytes);
            Program program = [&] {
              try {
                return load(path);
              } catch (const Error& error) {
                const std::string text = error.what();
                require(error.code() == ErrorCode::kIo, "refused with another code: " + text);
                require(text.find(path) != std::string::npos, "does not name the file: " + text);
                require(text.size() < 2000, "the message is too long: " + text);
                throw;
              }
            }();
            run(std::move(program));
          }};
}

// The metadata of programs alone, in files that are sound otherwise: damage reaches the graph.
Format metadata(const std::string& folder) {
  static constexpr char kBetween = '\f';
  static constexpr const char* kKeys[] = {"graph", "signature", "operators"};
  saved_views(folder);
  const std::string path = folder + "/model.mtg";
  const std::string sound = folder + "/sample.mtg";
  const nn::Metadata known = nn::SafetensorsFile(sound).metadata();
  const auto tensors = nn::load_safetensors(sound);
  std::string sample;
  for (const char* key : kKeys) sample += known.at(key) + kBetween;
  return {"program metadata", {sample}, sample.size(), [=](const std::string& bytes) {
            nn::Metadata damaged = known;
            size_t begin = 0;
            for (const char* key : kKeys) {
              const size_t end = std::min(bytes.find(kBetween, begin), bytes.size());
              damaged[key] = bytes.substr(begin, end - begin);
              begin = std::min(end + 1, bytes.size());
            }
            nn::save_safetensors(path, tensors, damaged);  // refuses what is not UTF-8
            run(load(path));
          }};
}

Format graphs(const std::string& folder) {
  std::vector<std::string> samples;
  for (const auto& make : {saved_step, saved_views, saved_sizes}) {
    make(folder);
    samples.push_back(load(folder + "/sample.mtg").text());
  }
  return {"graph text", samples, samples[0].size(), [](const std::string& text) {
            const std::string once = to_text(graph::parse_text(text));
            require(to_text(graph::parse_text(once)) == once, "reads back as another graph");
          }};
}

Format arrays(const std::string& folder) {
  const std::string path = folder + "/x.npy";
  std::vector<std::string> samples;
  for (const Tensor& x : {ones({2, 3}), ones({4}, kBool), ones({1}, kInt64)}) {
    nn::save_npy(path, x);
    samples.push_back(read_file(path));
  }
  return {"npy", samples, 80, [path](const std::string& bytes) {
            write_file(path, bytes);
            const Tensor x = nn::load_npy(path);
            require(static_cast<size_t>(x.nbytes()) < bytes.size(), "more elements than bytes");
          }};
}

}  // namespace

std::vector<Format> program_formats(const std::string& folder) {
  return {graphs(folder), programs(folder), metadata(folder), arrays(folder)};
}

}  // namespace mytorch::testing
