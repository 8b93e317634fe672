#include "mytorch/text/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "mytorch/error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::text {
namespace {

using testing::TempDirectory;

// A tokenizer.json whose model is a small WordLevel, with other fields.
std::string json_with(const std::string& fields) {
  return R"({"model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"c":3}},)"
         R"("pre_tokenizer":{"type":"WhitespaceSplit"})" +
         (fields.empty() ? "" : "," + fields) + "}";
}
Tokenizer small(const std::string& fields = "") { return Tokenizer::from_json(json_with(fields)); }
std::string json_of_model(const std::string& model) { return R"({"model":)" + model + "}"; }

void expect_error(ErrorCode code, const std::string& part, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error with " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}
void expect_refused(ErrorCode code, const std::string& part, const std::string& json) {
  SCOPED_TRACE(json);
  expect_error(code, part, [&] { Tokenizer::from_json(json); });
}

using Ids = std::vector<int64_t>;
const char kTemplate[] =
    R"("added_tokens":[{"content":"<s>","special":true},{"content":"<e>","special":true}],)"
    R"("post_processor":{"type":"TemplateProcessing",)"
    R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)"
    R"("pair":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<e>","type_id":1}},)"
    R"({"Sequence":{"id":"B","type_id":1}}],)"
    R"("special_tokens":{"<s>":{"ids":[4],"tokens":["<s>"]},"<e>":{"ids":[5],"tokens":["<e>"]}}})";

TEST(Tokenizer, OffsetsAreBytesOfTheInput) {
  const Encoding encoding = small().encode(" a  é b");
  EXPECT_EQ(encoding.ids, (Ids{1, 0, 2}));
  EXPECT_EQ(encoding.offsets, (std::vector<Range>{{1, 2}, {4, 6}, {7, 8}}));
  EXPECT_EQ(encoding.tokens, (std::vector<std::string>{"a", "?", "b"}));
}

TEST(Tokenizer, OffsetsOfBrokenTextsAreBytesOfTheInput) {
  const Encoding encoding = small().encode("a \xff\xe2\x82 b");
  EXPECT_EQ(encoding.ids, (Ids{1, 0, 2}));
  EXPECT_EQ(encoding.offsets, (std::vector<Range>{{0, 1}, {2, 5}, {6, 7}}));
}

TEST(Tokenizer, SpecialTokensAreAddedUnlessRefused) {
  const Tokenizer tokenizer = small(kTemplate);
  const Encoding encoding = tokenizer.encode("a b");
  EXPECT_EQ(encoding.ids, (Ids{4, 1, 2}));
  EXPECT_EQ(encoding.special_tokens_mask, (Ids{1, 0, 0}));
  EXPECT_EQ(tokenizer.encode("a b", {.add_special_tokens = false}).ids, (Ids{1, 2}));
  const Encoding pair = tokenizer.encode("a", "b c");
  EXPECT_EQ(pair.ids, (Ids{1, 5, 2, 3}));
  EXPECT_EQ(pair.type_ids, (Ids{0, 1, 1, 1}));
  EXPECT_EQ(tokenizer.decode(pair.ids), "a b c");
  EXPECT_EQ(tokenizer.decode(pair.ids, false), "a <e> b c");
}

TEST(Tokenizer, VocabularyAnswersBothWays) {
  const Tokenizer tokenizer = small(kTemplate);
  EXPECT_EQ(tokenizer.token_to_id("b"), 2);
  EXPECT_EQ(tokenizer.token_to_id("<e>"), 5);
  EXPECT_EQ(tokenizer.token_to_id("absent"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(5), "<e>");
  EXPECT_EQ(tokenizer.id_to_token(6), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(int64_t{1} << 40), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 6u);
  EXPECT_EQ(tokenizer.vocab_size(false), 4u);
}

TEST(Tokenizer, DecodeIgnoresUnknownIds) {
  EXPECT_EQ(small().decode(Ids{1, -1, 77, int64_t{1} << 40, 2}), "a b");
  EXPECT_EQ(small().decode(Ids{}), "");
}

TEST(Tokenizer, TruncationCountsSpecialTokens) {
  Tokenizer tokenizer = small(kTemplate);
  tokenizer.enable_truncation({.max_length = 3});
  EXPECT_EQ(tokenizer.encode("a b c a").ids, (Ids{4, 1, 2}));
  tokenizer.enable_truncation({.max_length = 3, .direction = Side::kLeft});
  EXPECT_EQ(tokenizer.encode("a b c a").ids, (Ids{4, 3, 1}));
  EXPECT_EQ(tokenizer.encode("a b c", "a b c").ids, (Ids{3, 5, 3}));
  tokenizer.enable_truncation({.max_length = 4, .strategy = Truncation::Strategy::kOnlySecond});
  EXPECT_EQ(tokenizer.encode("a b", "c b a").ids, (Ids{1, 2, 5, 3}));
  tokenizer.no_truncation();
  EXPECT_EQ(tokenizer.encode("a b c a").ids.size(), 5u);
}

TEST(Tokenizer, ImpossibleTruncationIsRefused) {
  Tokenizer tokenizer = small(kTemplate);
  tokenizer.enable_truncation({.max_length = 0});
  expect_error(ErrorCode::kValue, "1 special tokens", [&] { tokenizer.encode("a"); });
  tokenizer.enable_truncation({.max_length = 3, .strategy = Truncation::Strategy::kOnlyFirst});
  expect_error(ErrorCode::kValue, "kLongestFirst", [&] { tokenizer.encode("a", "a b c"); });
  tokenizer.enable_truncation({.max_length = 2, .strategy = Truncation::Strategy::kOnlySecond});
  expect_error(ErrorCode::kValue, "kOnlySecond", [&] { tokenizer.encode("a b c"); });
}

TEST(Tokenizer, PaddingMakesABatchRectangular) {
  Tokenizer tokenizer = small();
  const std::vector<std::string> texts = {"a", "a b c", ""};
  tokenizer.enable_padding({.id = 9, .token = "<pad>"});
  std::vector<Encoding> batch = tokenizer.encode_batch(texts);
  EXPECT_EQ(batch[0].ids, (Ids{1, 9, 9}));
  EXPECT_EQ(batch[0].attention_mask, (Ids{1, 0, 0}));
  EXPECT_EQ(batch[0].special_tokens_mask, (Ids{0, 1, 1}));
  EXPECT_EQ(batch[2].tokens, (std::vector<std::string>(3, "<pad>")));
  tokenizer.enable_padding({.multiple_of = 4, .direction = Side::kLeft});
  batch = tokenizer.encode_batch(texts, {.tokens = false});
  EXPECT_EQ(batch[1].ids, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(batch[2].ids.size(), 4u);
  EXPECT_TRUE(batch[2].tokens.empty());
  tokenizer.enable_padding({.length = size_t{1} << 40});
  expect_error(ErrorCode::kValue, "the limit is", [&] { tokenizer.encode("a"); });
  tokenizer.no_padding();
  EXPECT_EQ(tokenizer.encode_batch(texts)[2].size(), 0u);
  EXPECT_TRUE(tokenizer.encode_batch(std::vector<std::string>{}).empty());
}

TEST(Tokenizer, BatchesOfPairsEqualSinglePairs) {
  const Tokenizer tokenizer = small(kTemplate);
  const std::vector<std::pair<std::string, std::string>> pairs = {{"a", "b"}, {"", "c"}, {"b", ""}};
  const auto batch = tokenizer.encode_batch(pairs, {.threads = 3});
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(batch[i].ids, tokenizer.encode(pairs[i].first, pairs[i].second).ids);
  }
}

TEST(Tokenizer, ErrorsOfABatchReachTheCaller) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model":{"type":"WordLevel","unk_token":"?","vocab":{"a":1}}})");
  const std::vector<std::string> texts(100, "unknown");
  expect_error(ErrorCode::kValue, "no token '?'",
               [&] { tokenizer.encode_batch(texts, {.threads = 4}); });
}

TEST(Tokenizer, OneTokenizerServesSeveralThreads) {
  const Tokenizer tokenizer = small(kTemplate);
  std::vector<std::thread> threads;
  std::vector<Ids> ids(4);
  for (size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n)
        ids[i] = tokenizer.encode("a b " + std::to_string(n) + " c").ids;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& each : ids) EXPECT_EQ(each, (Ids{4, 1, 2, 0, 3}));
}

TEST(Tokenizer, LongWordsAreMergedAsShortOnes) {
  const Tokenizer tokenizer = Tokenizer::from_json(json_of_model(
      R"({"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2,"b":3},"merges":["a a","aa aa"]})"));
  EXPECT_EQ(tokenizer.encode("aaaaaaab").ids, (Ids{2, 1, 0, 3}));
  EXPECT_EQ(tokenizer.encode(std::string(4001, 'a') + "b").size(), 1002u);
}

TEST(Tokenizer, TheCacheForgetsWithoutErrors) {
  const Tokenizer tokenizer = small();
  std::string text;
  for (int i = 0; i < 40000; ++i) text += std::to_string(i) + " ";
  EXPECT_EQ(tokenizer.encode(text + "a b").ids.size(), 40002u);
  EXPECT_EQ(tokenizer.encode("a 1 b").ids, (Ids{1, 0, 2}));
}

TEST(DecodeStream, WaitsForWholeCharacters) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model":{"type":"BPE","vocab":{"Ã":0,"©":1,"a":2},"merges":[]},)"
                           R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
                           R"("decoder":{"type":"ByteLevel"}})");
  EXPECT_EQ(tokenizer.encode("é").ids, (Ids{0, 1}));
  EXPECT_EQ(tokenizer.encode("é").offsets, (std::vector<Range>{{0, 2}, {0, 2}}));
  DecodeStream stream(tokenizer);
  EXPECT_EQ(stream.step(2), "a");
  EXPECT_EQ(stream.step(0), "");
  EXPECT_EQ(stream.step(1), "é");
  EXPECT_EQ(stream.step(0), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.step(2), "a");
}

TEST(TokenizerFile, MessagesNameTheFile) {
  const TempDirectory folder;
  expect_error(ErrorCode::kIo, "cannot be read", [&] { Tokenizer::from_file(folder.file("no")); });
  expect_error(ErrorCode::kIo, "cannot be read", [&] { Tokenizer::from_file(folder.path()); });
  testing::write_file(folder.file("t.json"), "{");
  expect_error(ErrorCode::kIo, folder.file("t.json"),
               [&] { Tokenizer::from_file(folder.file("t.json")); });
  testing::write_file(folder.file("t.json"), json_with(""));
  EXPECT_EQ(Tokenizer::from_file(folder.file("t.json")).encode("b").ids, (Ids{2}));
}

TEST(TokenizerFile, UnsupportedComponentsAreNamedWithTheSupportedOnes) {
  expect_refused(ErrorCode::kUnsupported, "supported: BertNormalizer, Strip",
                 json_with(R"("normalizer":{"type":"Magic"})"));
  expect_refused(ErrorCode::kUnsupported, "'pre_tokenizer'",
                 R"({"model":{"type":"WordLevel","vocab":{}},"pre_tokenizer":{"type":"Magic"}})");
  expect_refused(ErrorCode::kUnsupported, "'post_processor.processors[0]'",
                 json_with(R"("post_processor":{"type":"Sequence","processors":[{"type":"X"}]})"));
  expect_refused(ErrorCode::kUnsupported, "CTC", json_with(R"("decoder":{"type":"X"})"));
  expect_refused(ErrorCode::kUnsupported, "Unigram", json_of_model(R"({"type":"X"})"));
  expect_refused(ErrorCode::kUnsupported, "dropout",
                 json_of_model(R"({"type":"BPE","vocab":{},"merges":[],"dropout":0.1})"));
  expect_refused(ErrorCode::kUnsupported, "1.0", json_with(R"("version":"2.0")"));
}

TEST(TokenizerFile, DamagedFilesAreRefused) {
  const char* const files[] = {"", "[]", "null", "{", "{}", "{\"model\":3}", "nonsense", "{}x"};
  for (const char* file : files) expect_refused(ErrorCode::kIo, "[Tokenizer] ", file);
  expect_refused(ErrorCode::kIo, "zero byte", std::string("{}\0{", 4));
  expect_refused(ErrorCode::kIo, "nested", std::string(100000, '['));
  const std::string bpe = R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":)";
  expect_refused(ErrorCode::kIo, "model.merges[0]", json_of_model(bpe + R"(["a b"]})"));
  expect_refused(ErrorCode::kIo, "model.merges[0]", json_of_model(bpe + R"(["ab"]})"));
  expect_refused(ErrorCode::kIo, "model.merges[0]", json_of_model(bpe + R"([["a"]]})"));
  const std::string level = R"({"type":"WordLevel","vocab":)";
  expect_refused(ErrorCode::kIo, "model.vocab.a", json_of_model(level + R"({"a":-1}})"));
  expect_refused(ErrorCode::kIo, "the limit is", json_of_model(level + R"({"a":2000000000}})"));
  const std::string unigram = R"({"type":"Unigram","vocab":)";
  expect_refused(ErrorCode::kIo, "unk_id", json_of_model(unigram + R"([["a",-1.5]],"unk_id":1})"));
  expect_refused(ErrorCode::kIo, "model.vocab[0]", json_of_model(unigram + R"([["a"]]})"));
  expect_refused(ErrorCode::kIo, "precompiled_charsmap",
                 json_with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"////"})"));
}

TEST(TokenizerFile, BadPatternsAreRefused) {
  const auto split = [](const std::string& pattern) {
    return R"({"model":{"type":"WordLevel","unk_token":"?","vocab":{"?":0}},"pre_tokenizer":)"
           R"({"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":")" +
           pattern + "\"}}}";
  };
  expect_refused(ErrorCode::kUnsupported, "pattern", split("("));
  expect_refused(ErrorCode::kUnsupported, "&&", split("[a&&b]"));
  expect_refused(ErrorCode::kUnsupported, "another class", split("[a[b]]"));
  const Tokenizer slow = Tokenizer::from_json(split("(a|a?)+[bc]"));
  expect_error(ErrorCode::kValue, "the pattern", [&] { slow.encode(std::string(5000, 'a')); });
}

}  // namespace
}  // namespace mytorch::text
