// Compares the tokenizers with the Python package `tokenizers` (scripts/make-tokenizer-goldens).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mytorch/text/tokenizer.h"

namespace mytorch::text {
namespace {

using Json = nlohmann::json;

Json read_json(const std::string& name) {
  std::ifstream file(std::string(TEXT_GOLDENS) + "/" + name + ".json");
  return Json::parse(file);
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TEXT_GOLDENS)) {
    const std::string name = entry.path().stem().string();
    if (name != "texts") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const Json& input) {
  if (input.contains("text")) return input["text"];
  std::string text;
  for (const int byte : input["bytes"]) text += static_cast<char>(byte);
  return text;
}

std::string digits(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += std::to_string(number);
  return text;
}

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Json json = read_json(GetParam());
    results_ = json["results"];
    inputs_ = read_json("texts");
    const char* real = std::getenv("MYTORCH_TOKENIZER");
    if (json["tokenizer"].is_null()) {
      if (real == nullptr) GTEST_SKIP() << "MYTORCH_TOKENIZER does not name the tokenizer's file";
      tokenizer_.emplace(Tokenizer::from_file(real));
    } else {
      tokenizer_.emplace(Tokenizer::from_json(json["tokenizer"].dump()));
    }
    ASSERT_EQ(inputs_.size(), results_.size());
  }

  Encoding encode(const Json& input) const {
    const std::string text = text_of(input);
    if (!input.contains("pair")) return tokenizer_->encode(text);
    return tokenizer_->encode(text, input["pair"].get<std::string>());
  }

  std::optional<Tokenizer> tokenizer_;
  Json inputs_, results_;
};

TEST_P(Golden, EncodingsEqualTheReference) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    SCOPED_TRACE(inputs_[i].dump());
    const Json& expected = results_[i];
    if (expected.contains("error")) continue;
    const Encoding encoding = encode(inputs_[i]);
    EXPECT_EQ(encoding.ids, expected["ids"].get<std::vector<int64_t>>());
    EXPECT_EQ(digits(encoding.type_ids), expected["type"].get<std::string>());
    EXPECT_EQ(digits(encoding.attention_mask), expected["mask"].get<std::string>());
    EXPECT_EQ(digits(encoding.special_tokens_mask), expected["special"].get<std::string>());
    std::vector<size_t> offsets;
    for (const Range& range : encoding.offsets) {
      offsets.push_back(range.begin);
      offsets.push_back(range.end);
    }
    EXPECT_EQ(offsets, expected["offsets"].get<std::vector<size_t>>());
    ASSERT_EQ(encoding.tokens.size(), encoding.ids.size());
    for (size_t t = 0; t < encoding.size(); ++t) {
      const auto& shown = expected["tokens"];
      const std::string key = std::to_string(t);
      EXPECT_EQ(encoding.tokens[t], shown.contains(key)
                                        ? shown[key].get<std::string>()
                                        : tokenizer_->id_to_token(encoding.ids[t]).value_or(""));
    }
  }
}

TEST_P(Golden, DecodedTextsEqualTheReference) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    SCOPED_TRACE(inputs_[i].dump());
    const Json& expected = results_[i];
    if (expected.contains("error")) continue;
    const std::vector<int64_t> ids = expected["ids"];
    EXPECT_EQ(tokenizer_->decode(ids), expected["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->decode(ids, false),
              expected.value("all", expected["decoded"]).get<std::string>());
  }
}

TEST_P(Golden, DecodeStreamGivesTheDecodedText) {
  // These decoders change a token's text if it is the last or follows an equal one.
  if (GetParam() == "bpe_suffix" || GetParam() == "ctc") return;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    SCOPED_TRACE(inputs_[i].dump());
    if (results_[i].contains("error")) continue;
    DecodeStream stream(*tokenizer_);
    std::string text;
    for (const int64_t id : results_[i]["ids"]) text += stream.step(id);
    text += stream.finish();
    EXPECT_EQ(text, results_[i]["decoded"].get<std::string>());
  }
}

TEST_P(Golden, BatchesOfSeveralThreadsEqualSingleTexts) {
  if (tokenizer_->padding()) tokenizer_->no_padding();
  std::vector<std::string> texts;
  for (int repeated = 0; repeated < 3; ++repeated) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].contains("pair") && !results_[i].contains("error")) {
        texts.push_back(text_of(inputs_[i]));
      }
    }
  }
  const std::vector<Encoding> batch = tokenizer_->encode_batch(texts, {.threads = 4});
  ASSERT_EQ(batch.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const Encoding single = tokenizer_->encode(texts[i], {.tokens = false});
    EXPECT_EQ(batch[i].ids, single.ids);
    EXPECT_EQ(batch[i].offsets, single.offsets);
    EXPECT_EQ(batch[i].tokens.size(), single.size());
    EXPECT_TRUE(single.tokens.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mytorch::text
