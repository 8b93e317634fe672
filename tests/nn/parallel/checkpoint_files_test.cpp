// What is on the disk: files that other tools read and write, and what failures leave.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "mytorch/nn/parallel/zero_redundancy_optimizer.h"
#include "mytorch/nn/safetensors_files.h"
#include "tests/nn/data/file_size_limit.h"
#include "tests/nn/parallel/checkpoint_folder.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

namespace files = std::filesystem;
using mytorch::testing::FileSizeLimit;
using mytorch::testing::read_file;
using mytorch::testing::write_file;
using ranks::expect;
using ranks::expect_close;
using ranks::expect_error;

struct TiedNet : Module {
  Linear in{6, 7}, out{7, 5}, again{7, 5};
  TiedNet() {
    register_module("in", in);
    register_module("out", out);
    register_module("again", again);
    again.weight = out.weight;
    ranks::set_parameters(*this, 0);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor hidden = tanh(in(x));
    return out(hidden) + again(hidden);
  }
};

Sequential some_net(double seed) {
  Sequential net(Linear(6, 10), Tanh(), Linear(10, 10), BatchNorm1d(10), Linear(10, 5));
  ranks::set_parameters(net, seed);
  return net;
}

// Other tools look up a tensor's file in the index, and find it whole.
TEST_F(CheckpointFolder, HasAnIndexAndWholeTensors) {
  distributed::run_local(3, [&](const distributed::Group&) {
    Sequential net = some_net(0);
    FullyShardedDataParallel parallel(net);
    optim::AdamW optimizer(net.parameters(), optim::AdamWOptions(0.02));
    cross_entropy(parallel(ranks::batch(0, 0, 12, 6, 5).x), ranks::batch(0, 0, 12, 6, 5).y)
        .backward();
    save_sharded(path(), parallel, &optimizer);
  });
  const auto index = nlohmann::json::parse(read_file(path() + "/model.safetensors.index.json"));
  const TensorMap expected = some_net(0).state_dict();
  ASSERT_EQ(index["weight_map"].size(), expected.size());
  int64_t bytes = 0;
  std::vector<std::string> used = {"model.safetensors.index.json", "state.safetensors.index.json"};
  for (const auto& [name, tensor] : expected) {
    const std::string file = index["weight_map"][name];
    const TensorMap found = load_safetensors(path() + "/" + file);
    ASSERT_EQ(found.count(name), 1u) << name;
    EXPECT_EQ(found.at(name).sizes().vec(), tensor.sizes().vec());
    if (name.find("running") == std::string::npos &&
        name.find("num_batches") == std::string::npos) {
      EXPECT_TRUE(mytorch::equal(found.at(name), tensor)) << name;
    }
    EXPECT_EQ(SafetensorsFile(path() + "/" + file).metadata(), (Metadata{{"format", "pt"}}));
    bytes += tensor.nbytes();
    used.push_back(file);
  }
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  const auto state = nlohmann::json::parse(read_file(path() + "/state.safetensors.index.json"));
  for (const auto& [name, file] : state["weight_map"].items()) {
    EXPECT_TRUE(name.starts_with("optimizer.")) << name;
    used.push_back(file);
  }
  // No file is unknown, and all ranks write.
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  std::vector<std::string> present;
  for (const auto& entry : files::directory_iterator(path())) {
    present.push_back(entry.path().filename().string());
  }
  std::sort(present.begin(), present.end());
  EXPECT_EQ(present, used);
  EXPECT_EQ(present[2], "model-00003-of-00003.safetensors");
  // A plain model.
  Sequential plain = some_net(3);
  plain.load(path());
  EXPECT_TRUE(mytorch::equal(plain.at<Linear>(0).weight, expected.at("0.weight")));
}

// All that a program that is killed while it replaces a checkpoint may leave.
TEST_F(CheckpointFolder, IsReadableWhereverASaveWasCutOff) {
  save(10);
  const std::string fresh = path() + ".new", ready = path() + ".ready", old = path() + ".old";
  const auto complete = [&](const std::string& where) {
    files::rename(path(), directory_.file("kept"));
    save(20);
    files::rename(path(), where);
    files::rename(directory_.file("kept"), path());
  };
  // In the middle of a file.
  files::create_directory(fresh);
  write_file(fresh + "/.mytorch-1-0.tmp", "x");
  write_file(fresh + "/state.safetensors.index.json", "{");
  EXPECT_EQ(load(), 10);
  files::remove_all(fresh);
  EXPECT_FALSE(has_checkpoint(fresh));
  EXPECT_FALSE(has_checkpoint(directory_.path()));
  // Before the renames, and between them.
  complete(fresh);
  EXPECT_EQ(load(), 10);
  files::rename(fresh, ready);
  EXPECT_EQ(load(), 10);
  files::rename(path(), old);
  EXPECT_EQ(load(), 20);
  // The next save begins with what remains, and loses nothing if it fails.
  distributed::run_local(2, [&](const distributed::Group& g) {
    TensorPart wrong = part(g, 30);
    wrong.begin = wrong.end = 9;
    expect_error([&] { save_parts(path(), {wrong}); }, "has no part");
  });
  EXPECT_EQ(load(), 20);
  save(30);
  EXPECT_EQ(load(), 30);
  EXPECT_EQ(names(), std::vector<std::string>{"saved"});
  // Before the old one is removed; and where the new one is not there yet.
  complete(old);
  EXPECT_EQ(load(), 30);
  files::remove_all(path());
  EXPECT_EQ(load(), 20);
  save(40);
  EXPECT_EQ(load(), 40);
  EXPECT_EQ(names(), std::vector<std::string>{"saved"});
  // A first save that had only to be renamed.
  files::rename(path(), ready);
  EXPECT_TRUE(has_checkpoint(path()));
  EXPECT_EQ(load(), 40);
}

TEST_F(CheckpointFolder, AFullDiskIsAnErrorOfAllRanksAndKeepsTheEarlierOne) {
  const auto parts = [](const distributed::Group& g, double value) {
    std::vector<TensorPart> parts{part(g, value)};
    // Rank 1 has a large tensor besides.
    if (g.rank() == 1) {
      parts.push_back({"large", {5000}, TensorPart::kWhole, 0, 0, mytorch::full({5000}, value)});
    }
    return parts;
  };
  distributed::run_local(2, [&](const distributed::Group& g) { save_parts(path(), parts(g, 1)); });
  for (const bool async : {false, true}) {
    for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{2000}}) {
      const FileSizeLimit full(limit);
      std::vector<std::string> messages(2);
      distributed::run_local(2, [&](const distributed::Group& g) {
        try {
          if (async) {
            save_async(path(), parts(g, 2)).wait();
          } else {
            save_parts(path(), parts(g, 2));
          }
        } catch (const Error& error) {
          messages[static_cast<size_t>(g.rank())] = error.what();
        }
      });
      for (const std::string& message : messages) {
        EXPECT_NE(message.find(path() + ".new/state-0000"), std::string::npos) << message;
        EXPECT_NE(message.find("cannot be written: File too large"), std::string::npos) << message;
      }
      // Rank 1 alone writes so much.
      if (limit == 2000) {
        EXPECT_EQ(messages[0].find("[checkpoint] rank 1 could not write"), 0u) << messages[0];
      }
      EXPECT_EQ(names(), std::vector<std::string>{"saved"});
      EXPECT_EQ(load(), 1);
    }
  }
  distributed::run_local(2, [&](const distributed::Group& g) { save_parts(path(), parts(g, 2)); });
  EXPECT_EQ(load(), 2);
}

// ---- Hugging Face's files ----

// Writes a model's tensors, in turn, into three files, and their index.
void write_as_hugging_face_does(const std::string& folder, const TensorMap& tensors) {
  files::create_directories(folder);
  TensorMap parts[3];
  nlohmann::json index;
  size_t i = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::string file = "model-0000" + std::to_string(i % 3 + 1) + "-of-00003.safetensors";
    index["weight_map"][name] = file;
    parts[i++ % 3][name] = tensor;
  }
  for (size_t k = 0; k < 3; ++k) {
    save_safetensors(folder + "/model-0000" + std::to_string(k + 1) + "-of-00003.safetensors",
                     parts[k], {{"format", "pt"}});
  }
  write_file(folder + "/model.safetensors.index.json", index.dump());
}

TEST_F(CheckpointFolder, ReadsHuggingFacesFilesIntoShards) {
  TiedNet expected;
  TensorMap state = expected.state_dict();
  state.erase("again.weight");  // as tied weights are saved
  for (auto& [name, tensor] : state) tensor = tensor.detach().to(kFloat64);
  write_as_hugging_face_does(path(), state);
  save_safetensors(directory_.file("one.safetensors"), state);
  const Tensor x = ranks::batch(0, 0, 4, 6, 5).x;
  const Tensor y = expected(x).detach();
  for (const int count : {1, 2, 3, 5}) {
    for (const std::string& from :
         {path(), path() + "/model.safetensors.index.json", directory_.file("one.safetensors")}) {
      distributed::run_local(count, [&](const distributed::Group&) {
        TiedNet net;
        ranks::set_parameters(net, 5);
        FullyShardedDataParallel parallel(net);
        load_sharded(from, parallel);
        const NoGradGuard no_grad;
        expect_close(parallel(x), y, 1e-6, "the result");
      });
    }
  }
  Linear in(6, 7);
  const auto weight = [&](const std::string& name, const std::vector<int64_t>& sizes) {
    return TensorPart{name, sizes, TensorPart::kWhole, 0, 0, in.weight.detach()};
  };
  load_parts(path(), {weight("model.in.weight", {7, 6})});
  EXPECT_TRUE(mytorch::equal(in.weight, expected.in.weight));
  expect_error([&] { load_parts(path(), {weight("in.weight", {7, 6})}); }, "has no 'in.weight'");
  expect_error(
      [&] {
        load_parts(path(), {weight("model.in.weight", {6, 7})});
      },
      "has shape (7, 6) in " + path() + " and (6, 7) here");
}

// A file that no memory holds: what is read of it are ranges.
TEST_F(CheckpointFolder, ReadsTheRangesOfARankAlone) {
  constexpr int64_t kRows = int64_t{1} << 24, kColumns = int64_t{1} << 14;  // 1 TiB of float32
  const std::string file = directory_.file("huge");
  std::string header = R"({"x":{"dtype":"F32","shape":[16777216,16384],"data_offsets":[0,)" +
                       std::to_string(4 * kRows * kColumns) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  {
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8) << header;
    for (const auto& [element, value] :
         {std::pair{5 * kColumns + 3, 1.0f}, std::pair{1000 * kColumns + 2, 2.0f},
          std::pair{kRows * kColumns - 1, 3.0f}}) {
      out.seekp(static_cast<std::streamoff>(8 + length) + 4 * element);
      out.write(reinterpret_cast<const char*>(&value), 4);
    }
    ASSERT_TRUE(out.good());
  }
  const std::vector<int64_t> sizes = {kRows, kColumns};
  const Tensor rows = mytorch::ones({2, kColumns}), flat = mytorch::ones({4});
  const Tensor block = mytorch::ones({1100, 2});
  load_parts(file, {{"model.x", sizes, 0, 5, 7, rows}});
  load_parts(file,
             {{"model.x", sizes, TensorPart::kFlat, kRows * kColumns - 4, kRows * kColumns, flat}});
  load_parts(
      file,
      {block_of(block_of({"model.x", {1100, 2}, TensorPart::kWhole, 0, 0, block}, 0, 0, kRows), 1,
                2, kColumns)});
  EXPECT_EQ(rows[0][3].item<double>(), 1);
  EXPECT_EQ(rows.sum().item<double>(), 1);
  EXPECT_EQ(flat.to_vector<float>(), (std::vector<float>{0, 0, 0, 3}));
  EXPECT_EQ(block[5][1].item<double>(), 1);
  EXPECT_EQ(block[1000][0].item<double>(), 2);
  EXPECT_EQ(block.sum().item<double>(), 3);
}

// ---- divided optimizers ----

TEST_F(CheckpointFolder, StatesOfZeroRedundancyOptimizersChangeTheirRanks) {
  using Optimizer = ZeroRedundancyOptimizer<optim::AdamW>;
  const auto step = [](Sequential& net, Optimizer& optimizer, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const ranks::Data data = ranks::batch(i, 0, 12, 6, 5);
      optimizer.zero_grad();
      cross_entropy(net(data.x), data.y).backward();
      optimizer.step();
    }
  };
  const auto save_all = [&](const Sequential& net, const Optimizer& optimizer) {
    std::vector<TensorPart> parts = parts_of(net);
    for (TensorPart& part : parts_of(optimizer)) parts.push_back(std::move(part));
    save_parts(path(), parts);
  };
  Tensor expected;
  distributed::run_local(1, [&](const distributed::Group&) {
    Sequential net = some_net(0);
    Optimizer optimizer(net.parameters(), {.lr = 0.02});
    step(net, optimizer, 0, 6);
    expected = net.at<Linear>(0).weight.detach().clone();
  });
  for (const auto& [writers, readers] : {std::pair{3, 2}, std::pair{2, 3}, std::pair{1, 4}}) {
    distributed::run_local(writers, [&](const distributed::Group&) {
      Sequential net = some_net(0);
      Optimizer optimizer(net.parameters(), {.lr = 0.02});
      step(net, optimizer, 0, 3);
      save_all(net, optimizer);
    });
    distributed::run_local(readers, [&](const distributed::Group&) {
      Sequential net = some_net(4);
      Optimizer optimizer(net.parameters(), {.lr = 0.5});
      load_parts(path(), parts_of(net));
      load_sharded(path(), optimizer);
      expect(optimizer.local().lr() == 0.02, "the learning rate was not loaded");
      step(net, optimizer, 3, 6);
      expect_close(net.at<Linear>(0).weight, expected, 1e-6, "the weight");
    });
  }
}

}  // namespace
}  // namespace mytorch::nn
