#include "mytorch/nn/training/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mytorch/nn/container.h"
#include "mytorch/nn/data/combine.h"
#include "mytorch/nn/data/data_loader.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/optim.h"
#include "mytorch/ops/mse_loss.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/randn.h"
#include "tests/formats/mutate.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::Mutator;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::values;
using mytorch::testing::write_file;

std::shared_ptr<const data::Dataset> noisy_data() {
  const Generator generator(1);
  const Tensor x = randn({12, 4}, kFloat32, {}, generator);
  return std::make_shared<data::MapDataset>(data::map(
      data::TensorDataset(x, x.sum(1, true)), [](const Tensor& x) { return x + 0.1 * rand({4}); }));
}

// Everything that a run consists of, made anew as in a new process.
struct Training {
  explicit Training(const std::string& directory, int workers = 2, int64_t hidden = 8)
      : model{Linear(4, hidden), BatchNorm1d(hidden), Dropout(0.5), Linear(hidden, 1)},
        adam(model.parameters(), {.lr = 0.01}),
        schedule(adam, 3, 0.5),
        loader(noisy_data(),
               {.batch_size = 4, .shuffle = true, .seed = 11, .num_workers = workers}),
        checkpoint(directory, {.keep = 2}) {
    checkpoint.add("model", model)
        .add("optimizer", adam)
        .add("schedule", schedule)
        .add("loader", loader)
        .add("generator", default_generator())
        .add("own", own);
  }

  // Trains until `last` steps are done, and saves at step `save_at` if it is reached.
  void train(int64_t last, int64_t save_at = -1) {
    while (step < last) {
      for (const auto& [x, y] : loader) {
        adam.zero_grad();
        const Tensor loss = mse_loss(model(x), y);
        loss.backward();
        adam.step();
        schedule.step();
        own.take(2);
        losses.push_back(loss.item<double>());
        if (++step == save_at) checkpoint.save(step, {{"note", "caf\u00e9"}});
        if (step == last) break;
      }
    }
  }

  std::map<std::string, std::vector<double>> state() const {
    std::map<std::string, std::vector<double>> all;
    for (const auto& [name, tensor] : model.state_dict()) all["model." + name] = values(tensor);
    for (const auto& [name, tensor] : adam.state_dict()) all["adam." + name] = values(tensor);
    all["own"] = {static_cast<double>(own.call())};
    all["lr"] = {adam.lr()};
    return all;
  }

  Sequential model;
  optim::Adam adam;
  optim::StepLR schedule;
  data::DataLoader loader;
  Generator own{9};
  Checkpoint checkpoint;
  int64_t step = 0;
  std::vector<double> losses;
};

TEST(Checkpoint, AResumedRunComputesTheSameBits) {
  for (const int64_t at : {3, 5}) {  // the end of an epoch, and its middle
    const TempDirectory directory;
    manual_seed(1);
    Training whole(directory.path());
    whole.train(10, at);

    manual_seed(2);  // everything differs until it is loaded
    rand({3});
    Training resumed(directory.path(), 3);
    const auto info = resumed.checkpoint.load_latest();
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->step, at);
    EXPECT_EQ(info->metadata, (Metadata{{"note", "caf\u00e9"}}));
    resumed.step = info->step;
    resumed.train(10);
    EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + at, whole.losses.end()));
    EXPECT_EQ(resumed.state(), whole.state());
  }
}

TEST(Checkpoint, KeepsTheLastFiles) {
  const TempDirectory directory;
  Training run(directory.file("new/folder"));
  EXPECT_FALSE(run.checkpoint.load_latest().has_value());
  EXPECT_TRUE(run.checkpoint.paths().empty());
  for (int64_t step : {1, 20, 3}) run.checkpoint.save(step);
  const std::string folder = directory.file("new/folder/checkpoint-00000000");
  EXPECT_EQ(run.checkpoint.paths(),
            (std::vector<std::string>{folder + "03.safetensors", folder + "20.safetensors"}));
  write_file(directory.file("new/folder/checkpoint-x.safetensors"), "");
  write_file(directory.file("new/folder/other-0000000001.safetensors"), "");
  EXPECT_EQ(run.checkpoint.load_latest()->step, 20);
  EXPECT_TRUE(std::filesystem::exists(directory.file("new/folder/other-0000000001.safetensors")));
}

TEST(Checkpoint, RefusesTheFileOfAnotherModelAndNamesTheKeys) {
  const TempDirectory directory;
  Training run(directory.path());
  run.train(2, 2);
  Training wider(directory.path(), 0, 9);
  const auto before = wider.state();
  expect_error(ErrorCode::kValue,
               {"[Checkpoint] file " + directory.path(), "another model than 'model'",
                "0.weight is float32 (8, 4) in the file, float32 (9, 4) in 'model'"},
               [&] { wider.checkpoint.load_latest(); });
  EXPECT_EQ(wider.state(), before);

  Sequential other{Linear(4, 8), Dropout(0.5), Linear(8, 1)};
  Checkpoint missing(directory.path());
  missing.add("model", other).add("optimizer", run.adam).add("schedule", run.schedule);
  missing.add("loader", run.loader).add("generator", run.own);
  expect_error(ErrorCode::kValue, {"parts that were not added: own"},
               [&] { missing.load_latest(); });
  missing.add("own", default_generator());
  expect_error(ErrorCode::kValue,
               {"the file lacks 2.bias, 2.weight", "only the file has 1.bias, ", ", 3.bias"},
               [&] { missing.load_latest(); });
}

TEST(Checkpoint, ChangesNothingIfAPartRefuses) {
  const TempDirectory directory;
  Training run(directory.path());
  run.train(2, 2);
  Training other(directory.path());
  other.adam.add_group({ones({3}).requires_grad_()}, {.lr = 0.5});
  const auto before = other.state();
  expect_error(ErrorCode::kValue, {"[Checkpoint]", "part 'optimizer'", "group1"},
               [&] { other.checkpoint.load_latest(); });
  EXPECT_EQ(other.state(), before);

  // The schedule, which is set before it, is set back.
  Checkpoint late(directory.path());
  late.add("model", run.model).add("optimizer", run.adam).add("schedule", run.schedule);
  data::DataLoader another(noisy_data(), {.batch_size = 3, .seed = 11});
  late.add("loader", another).add("generator", default_generator()).add("own", run.own);
  run.train(3);
  const auto trained = run.state();
  expect_error(ErrorCode::kValue, {"part 'loader'", "batch_size"}, [&] { late.load_latest(); });
  EXPECT_EQ(run.state(), trained);
}

TEST(Checkpoint, DamagedFilesAreRefusedWhole) {
  const TempDirectory directory;
  Training run(directory.path());
  run.train(2, 2);
  const std::string path = run.checkpoint.paths().at(0);
  const std::string original = read_file(path);
  Training other(directory.path());
  auto expected = other.state();
  Mutator mutator(5);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string damaged = mutator.mutate({original}, original.size() / 2);
    if (damaged == original) continue;
    write_file(path, damaged);
    try {
      // Only a change that means nothing, such as a space in the header, may remain.
      ASSERT_EQ(other.checkpoint.load(path).step, 2);
      expected = run.state();
      ASSERT_EQ(other.state(), expected);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == ErrorCode::kIo || error.code() == ErrorCode::kValue)
          << error.what();
      ASSERT_EQ(other.state(), expected);
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
  std::string flipped = original;
  flipped.back() ^= 1;
  write_file(path, flipped);
  expect_error(ErrorCode::kIo, {path, "checksum"}, [&] { other.checkpoint.load(path); });
}

TEST(Checkpoint, RefusesInvalidNamesAndOptions) {
  expect_error(ErrorCode::kValue, {"keep 0"}, [] { Checkpoint("x", {.keep = 0}); });
  expect_error(ErrorCode::kValue, {"prefix"}, [] { Checkpoint("x", {.prefix = "a/b"}); });
  Checkpoint checkpoint("x");
  checkpoint.add("a", default_generator());
  for (const char* name : {"a", "", "b.c"}) {
    expect_error(ErrorCode::kValue, {"cannot be named"},
                 [&] { checkpoint.add(name, default_generator()); });
  }
  expect_error(ErrorCode::kValue, {"step -1"}, [&] { checkpoint.save(-1); });
  expect_error(ErrorCode::kIo, {"/dev/null/x"}, [] { Checkpoint("/dev/null/x").save(1); });
  const TempDirectory directory;
  const std::string path = directory.file("plain.safetensors");
  save_safetensors(path, {{"x", ones({1})}});
  expect_error(ErrorCode::kIo, {path, "no checkpoint"}, [&] { checkpoint.load(path); });
}

}  // namespace
}  // namespace mytorch::nn
