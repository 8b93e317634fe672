"""Idioms: models."""

import math
import random

from idioms.table import close, idiom, same
import mytorch as mt
from mytorch import Tensor
import mytorch.nn as nn
import mytorch.nn.functional as F
import mytorch.optim as optim
import numpy as np


@idiom
def convolutional_net():
    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3)
            self.conv2 = nn.Conv2d(4, 8, kernel_size=3, padding=1)
            self.pool = nn.MaxPool2d(2, 2)
            self.fc = nn.Linear(8 * 3 * 3, 10)

        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x)))
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = x.view(-1, self.num_flat_features(x))
            return F.log_softmax(self.fc(x), dim=1)

        def num_flat_features(self, x):
            size = x.size()[1:]
            num_features = 1
            for s in size:
                num_features *= s
            return num_features

    out = LeNet()(mt.randn(2, 1, 14, 14))
    close(out.exp().sum(1), [1, 1])
    assert nn.AdaptiveAvgPool2d((1, 1))(mt.ones(2, 3, 4, 5)).flatten(1).shape == (2, 3)
    assert F.interpolate(mt.ones(1, 1, 2, 2), scale_factor=2, mode="bilinear", align_corners=False).shape == (
        1,
        1,
        4,
        4,
    )


@idiom
def convolution_with_given_kernel():
    sobel = mt.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]]).view(1, 1, 3, 3)
    image = mt.arange(5.0).repeat(5, 1)[None, None]
    close(F.conv2d(image, sobel), np.full((1, 1, 3, 3), -8))
    per_channel = F.conv2d(image.repeat(1, 3, 1, 1), sobel.repeat(3, 1, 1, 1), padding=1, groups=3)
    assert per_channel.shape == (1, 3, 5, 5)


@idiom
def residual_block():
    class BasicBlock(nn.Module):
        expansion = 1

        def __init__(self, in_planes, planes, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = nn.Sequential()
            if stride != 1 or in_planes != self.expansion * planes:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
                )

        def forward(self, x):
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return self.relu(out)

    block = BasicBlock(2, 4, stride=2)
    y = block(mt.randn(2, 2, 6, 6))
    y.mean().backward()
    assert y.shape == (2, 4, 3, 3) and y.min() >= 0 and block.conv1.weight.grad is not None
    same(BasicBlock(2, 2).shortcut(y), y)


@idiom
def language_model_step():
    class RNNModel(nn.Module):
        def __init__(self, vocab, dim, hidden):
            super().__init__()
            self.encoder = nn.Embedding(vocab, dim)
            self.rnn = nn.LSTM(dim, hidden, num_layers=2, batch_first=True, dropout=0.1)
            self.decoder = nn.Linear(hidden, vocab)

        def init_hidden(self, bsz):
            weight = next(self.parameters())
            return weight.new_zeros(2, bsz, self.rnn.hidden_size), weight.new_zeros(2, bsz, self.rnn.hidden_size)

        def forward(self, x, hidden):
            out, hidden = self.rnn(self.encoder(x), hidden)
            return self.decoder(out), hidden

    def repackage_hidden(h):
        return h.detach() if isinstance(h, mt.Tensor) else tuple(repackage_hidden(v) for v in h)

    model = RNNModel(11, 6, 8)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    hidden = model.init_hidden(3)
    x = mt.randint(0, 11, (3, 7))
    losses = []
    for _ in range(8):
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden = model(x[:, :-1], hidden)
        loss = F.cross_entropy(output.reshape(-1, 11), x[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and hidden[0].shape == (2, 3, 8) and math.exp(loss.item()) < 12


@idiom
def packed_sequences():
    from mytorch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

    sequences = [mt.randn(n, 3) for n in (4, 2, 3)]
    lengths = mt.tensor([len(s) for s in sequences])
    padded = pad_sequence(sequences, batch_first=True)
    lstm = nn.LSTM(3, 5, batch_first=True)
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    packed_out, (h, c) = lstm(packed)
    out, out_lengths = pad_packed_sequence(packed_out, batch_first=True)
    same(out_lengths, [4, 2, 3])
    assert out.shape == (3, 4, 5) and packed.data.shape == (9, 3)
    last = out[mt.arange(3), lengths - 1]
    close(last, h[-1])
    close(lstm(sequences[1].unsqueeze(0))[0][0, -1], h[0, 1])
    assert out[1, 2:].abs().sum() == 0


@idiom
def bidirectional_rnn():
    gru = nn.GRU(input_size=3, hidden_size=4, bidirectional=True, batch_first=True)
    out, h_n = gru(mt.randn(2, 5, 3))
    assert out.shape == (2, 5, 8) and h_n.shape == (2, 2, 4)
    feature = mt.cat((h_n[-2, :, :], h_n[-1, :, :]), dim=1)
    close(feature[:, :4], out[:, -1, :4])
    close(feature[:, 4:], out[:, 0, 4:])


@idiom
def recurrence_by_hand():
    class RNN(nn.Module):
        def __init__(self, input_size, hidden_size, output_size):
            super().__init__()
            self.hidden_size = hidden_size
            self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
            self.h2o = nn.Linear(hidden_size, output_size)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, input, hidden):
            hidden = mt.tanh(self.i2h(mt.cat((input, hidden), 1)))
            return self.softmax(self.h2o(hidden)), hidden

        def initHidden(self):
            return mt.zeros(1, self.hidden_size)

    rnn = RNN(3, 4, 2)
    hidden = rnn.initHidden()
    for letter in mt.eye(3):
        output, hidden = rnn(letter[None], hidden)
    nn.NLLLoss()(output, mt.tensor([1])).backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
    top_n, top_i = output.topk(1)
    assert top_i[0].item() in (0, 1) and rnn.i2h.weight.grad.abs().sum() > 0


@idiom
def teacher_forcing():
    class Decoder(nn.Module):
        def __init__(self, vocab, hidden):
            super().__init__()
            self.embedding = nn.Embedding(vocab, hidden)
            self.cell = nn.GRUCell(hidden, hidden)
            self.out = nn.Linear(hidden, vocab)

        def forward(self, hidden, targets, teacher_forcing_ratio=0.5):
            token = mt.zeros(hidden.size(0), dtype=mt.long, device=hidden.device)
            outputs = []
            for t in range(targets.size(1)):
                hidden = self.cell(F.relu(self.embedding(token)), hidden)
                logits = self.out(hidden)
                outputs.append(logits)
                use_teacher = random.random() < teacher_forcing_ratio
                topv, topi = logits.data.topk(1)
                token = targets[:, t] if use_teacher else topi.squeeze(-1).detach()
            return mt.stack(outputs, dim=1)

    targets = mt.randint(1, 6, (3, 4))
    decoder = Decoder(6, 8)
    for ratio in (1.0, 0.0, 0.5):
        logits = decoder(mt.zeros(3, 8), targets, ratio)
        assert logits.shape == (3, 4, 6)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    assert decoder.embedding.weight.grad.abs().sum() > 0


def scaled_dot_product(q, k, v, mask=None):
    """Attention as in tutorials."""
    d_k = q.size()[-1]
    attn_logits = mt.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        attn_logits = attn_logits.masked_fill(mask == 0, -9e15)
    attention = F.softmax(attn_logits, dim=-1)
    return mt.matmul(attention, v), attention


@idiom
def attention_by_hand():
    q, k, v = (mt.randn(2, 3, 5, 4) for _ in range(3))
    values, attention = scaled_dot_product(q, k, v)
    close(attention.sum(-1), np.ones((2, 3, 5)))
    close(values, F.scaled_dot_product_attention(q, k, v))
    causal = mt.tril(mt.ones(5, 5))
    values, attention = scaled_dot_product(q, k, v, mask=causal)
    close(values, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    close(values, F.scaled_dot_product_attention(q, k, v, attn_mask=causal.bool(), dropout_p=0.0))
    same(attention.triu(1).sum(), 0)


@idiom
def causal_self_attention():
    class CausalSelfAttention(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            assert n_embd % n_head == 0
            self.c_attn = nn.Linear(n_embd, 3 * n_embd)
            self.c_proj = nn.Linear(n_embd, n_embd)
            mask = mt.tril(mt.ones(block_size, block_size)).view(1, 1, block_size, block_size)
            self.register_buffer("bias", mask)
            self.n_head, self.n_embd = n_head, n_embd
            self.flash = hasattr(mt.nn.functional, "scaled_dot_product_attention")

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            y = att @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(y)

    m = CausalSelfAttention(8, 2, 6)
    x = mt.randn(2, 5, 8)
    y = m(x)
    x[:, -1] += 1
    assert m.flash and mt.allclose(y[:, :-1], m(x)[:, :-1], atol=1e-6) and not mt.allclose(y[:, -1], m(x)[:, -1])


@idiom
def transformer_block():
    class Head(nn.Module):
        def __init__(self, n_embd, head_size, block_size):
            super().__init__()
            self.key = nn.Linear(n_embd, head_size, bias=False)
            self.query = nn.Linear(n_embd, head_size, bias=False)
            self.value = nn.Linear(n_embd, head_size, bias=False)
            self.register_buffer("tril", mt.tril(mt.ones(block_size, block_size)))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x):
            B, T, C = x.shape
            k, q = self.key(x), self.query(x)
            wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
            wei = self.dropout(F.softmax(wei, dim=-1))
            return wei @ self.value(x)

    class Block(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            self.heads = nn.ModuleList([Head(n_embd, n_embd // n_head, block_size) for _ in range(n_head)])
            self.proj = nn.Linear(n_embd, n_embd)
            self.ffwd = nn.Sequential(
                nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.1)
            )
            self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

        def forward(self, x):
            h = self.ln1(x)
            x = x + self.proj(mt.cat([head(h) for head in self.heads], dim=-1))
            return x + self.ffwd(self.ln2(x))

    class LanguageModel(nn.Module):
        def __init__(self, vocab_size, n_embd=8, block_size=6):
            super().__init__()
            self.block_size = block_size
            self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
            self.position_embedding_table = nn.Embedding(block_size, n_embd)
            self.blocks = nn.Sequential(*[Block(n_embd, 2, block_size) for _ in range(2)])
            self.lm_head = nn.Linear(n_embd, vocab_size)

        def forward(self, idx, targets=None):
            B, T = idx.shape
            x = self.token_embedding_table(idx) + self.position_embedding_table(mt.arange(T, device=idx.device))
            logits = self.lm_head(self.blocks(x))
            if targets is None:
                return logits, None
            B, T, C = logits.shape
            return logits, F.cross_entropy(logits.view(B * T, C), targets.view(B * T))

        def generate(self, idx, max_new_tokens):
            for _ in range(max_new_tokens):
                logits, loss = self(idx[:, -self.block_size :])
                probs = F.softmax(logits[:, -1, :], dim=-1)
                idx = mt.cat((idx, mt.multinomial(probs, num_samples=1)), dim=1)
            return idx

    model = LanguageModel(5)
    optimizer = mt.optim.AdamW(model.parameters(), lr=1e-2)
    x = mt.arange(8).view(2, 4) % 5
    y = (x + 1) % 5
    losses = []
    for _ in range(12):
        logits, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    out = model.generate(mt.zeros((1, 1), dtype=mt.long), 8)[0].tolist()
    assert len(out) == 9 and all(0 <= token < 5 for token in out)


@idiom
def transformer_layers():
    mha = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    x = mt.randn(3, 5, 8)
    mask = mt.triu(mt.ones(5, 5), diagonal=1).bool()
    out, weights = mha(x, x, x, attn_mask=mask)
    assert out.shape == (3, 5, 8) and weights.shape == (3, 5, 5) and weights.triu(1).abs().sum() == 0
    pad = mt.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    _, weights = mha(x, x, x, key_padding_mask=pad, need_weights=True)
    same(weights[1, :, 3:].sum(), 0)
    layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2)
    assert encoder(x, src_key_padding_mask=pad).shape[0] == 3
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    encoder.eval()
    y = encoder(x, mask=causal)
    x[:, -1] = 0
    close(encoder(x, mask=causal)[:, :-1], y[:, :-1], 1e-4)


@idiom
def positional_encoding():
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=50):
            super().__init__()
            position = mt.arange(max_len).unsqueeze(1)
            div_term = mt.exp(mt.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
            pe = mt.zeros(max_len, 1, d_model)
            pe[:, 0, 0::2] = mt.sin(position * div_term)
            pe[:, 0, 1::2] = mt.cos(position * div_term)
            self.register_buffer("pe", pe)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.pe[: x.size(0)]

    y = PositionalEncoding(4)(mt.zeros(3, 2, 4))
    close(y[1, 0], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)])


@idiom
def variational_autoencoder():
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(12, 8)
            self.fc21, self.fc22 = nn.Linear(8, 2), nn.Linear(8, 2)
            self.fc3, self.fc4 = nn.Linear(2, 8), nn.Linear(8, 12)

        def encode(self, x):
            h1 = F.relu(self.fc1(x))
            return self.fc21(h1), self.fc22(h1)

        def reparameterize(self, mu, logvar):
            std = mt.exp(0.5 * logvar)
            eps = mt.randn_like(std)
            return mu + eps * std

        def decode(self, z):
            return mt.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 12))
            return self.decode(self.reparameterize(mu, logvar)), mu, logvar

    def loss_function(recon_x, x, mu, logvar):
        BCE = F.binary_cross_entropy(recon_x, x.view(-1, 12), reduction="sum")
        KLD = -0.5 * mt.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return BCE + KLD

    model, x = VAE(), mt.rand(6, 3, 4).round()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < losses[0]
    with mt.no_grad():
        sample = model.decode(mt.randn(4, 2)).cpu()
    assert sample.view(4, 1, 3, 4).shape == (4, 1, 3, 4) and 0 < sample.min() and sample.max() < 1


@idiom
def adversarial_step():
    def weights_init(m):
        classname = m.__class__.__name__
        if classname.find("Linear") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)

    netG = nn.Sequential(nn.Linear(2, 8), nn.ReLU(True), nn.Linear(8, 3))
    netD = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid())
    netG.apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=2e-2, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-2, betas=(0.5, 0.999))
    real = mt.randn(8, 3) + 3
    label = mt.full((8,), 1.0, dtype=mt.float)

    netD.zero_grad()
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(mt.randn(8, 2))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    optimizerD.step()
    assert netG[0].weight.grad is None and netD[0].weight.grad is not None

    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    before = netG[2].weight.detach().clone()
    optimizerG.step()
    assert not mt.equal(before, netG[2].weight) and (errD_real + errD_fake).item() > 0


@idiom
def transposed_convolutions():
    decoder = nn.Sequential(
        nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(True),
        nn.ConvTranspose2d(3, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )
    y = decoder(mt.randn(2, 4, 1, 1))
    assert y.shape == (2, 1, 4, 4) and y.abs().max() <= 1


@idiom
def policy_gradient():
    policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(dim=-1))
    rewards, log_probs = [1.0, 0.0, 2.0], []
    for _ in rewards:
        probs = policy(mt.from_numpy(np.random.rand(4)).float().unsqueeze(0))
        action = mt.multinomial(probs, 1)
        log_probs.append(mt.log(probs.gather(1, action)).squeeze())
    R, returns = 0, []
    for r in rewards[::-1]:
        R = r + 0.9 * R
        returns.insert(0, R)
    returns = mt.tensor(returns)
    close(returns, [1 + 0.81 * 2, 1.8, 2])
    returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
    loss = mt.stack([-log_prob * R for log_prob, R in zip(log_probs, returns)]).sum()
    loss.backward()
    assert policy[0].weight.grad.isfinite().all()


@idiom
def categorical_distribution():
    from mytorch.distributions import Categorical

    m = Categorical(logits=mt.tensor([[0.0, 1.0]]))
    action = m.sample()
    close(m.log_prob(action), F.log_softmax(mt.tensor([[0.0, 1.0]]), -1)[0, action])
    assert m.entropy().item() > 0


@idiom
def q_learning_target():
    policy_net, target_net = nn.Linear(4, 2), nn.Linear(4, 2)
    target_net.load_state_dict(policy_net.state_dict())
    state, next_state = mt.randn(5, 4), mt.randn(5, 4)
    action, reward, done = mt.randint(2, (5, 1)), mt.ones(5), mt.tensor([0, 0, 1, 0, 0], dtype=mt.bool)
    q = policy_net(state).gather(1, action)
    with mt.no_grad():
        target = reward + 0.99 * target_net(next_state).max(1).values * (~done)
    assert target[2] == 1
    nn.SmoothL1Loss()(q, target.unsqueeze(1)).backward()
    target_dict, policy_dict = target_net.state_dict(), policy_net.state_dict()
    for key in policy_dict:
        target_dict[key] = policy_dict[key] * 0.005 + target_dict[key] * (1 - 0.005)
    target_net.load_state_dict(target_dict)
    close(target_net.weight, policy_net.weight)
    non_final = mt.tensor(tuple(map(lambda s: s is not None, [1, None, 2])), dtype=mt.bool)
    values = mt.zeros(3)
    values[non_final] = mt.tensor([1.0, 2.0])
    same(values, [1, 0, 2])


@idiom
def graph_convolution():
    edges = mt.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = mt.eye(3)
    adj = mt.zeros(3, 3)
    adj[edges[0], edges[1]] = 1.0
    adj = adj + mt.eye(3)
    deg = adj.sum(1).pow(-0.5)
    norm = mt.diag(deg) @ adj @ mt.diag(deg)
    close(norm, norm.T)
    src, dst = edges
    out = mt.zeros(3, 3).index_add_(0, dst, x[src])
    same(out, (adj - mt.eye(3)).T)


@idiom
def sparse_adjacency():
    i, v = mt.tensor([[0, 1, 2], [1, 2, 0]]), mt.tensor([1.0, 2.0, 3.0])
    adj = mt.sparse_coo_tensor(i, v, (3, 3))
    same(mt.sparse.mm(adj, mt.eye(3)), [[0, 1, 0], [0, 0, 2], [3, 0, 0]])
    same(adj.to_dense().sum(), 6)


@idiom
def gram_matrix():
    def gram(input):
        a, b, c, d = input.size()
        features = input.view(a * b, c * d)
        return mt.mm(features, features.t()).div(a * b * c * d)

    image = mt.rand(1, 3, 4, 4).requires_grad_(True)
    optimizer = optim.Adam([image], lr=0.05)
    target = gram(mt.ones(1, 3, 4, 4)).detach()
    before = F.mse_loss(gram(image), target).item()
    for _ in range(10):
        optimizer.zero_grad()
        F.mse_loss(gram(image), target).backward()
        optimizer.step()
        with mt.no_grad():
            image.clamp_(0, 1)
    assert F.mse_loss(gram(image), target).item() < before


@idiom
def adversarial_example():
    model, x, y = nn.Linear(4, 3), mt.rand(2, 4), mt.tensor([0, 1])
    x.requires_grad = True
    loss = F.nll_loss(F.log_softmax(model(x), dim=1), y)
    model.zero_grad()
    loss.backward()
    perturbed = mt.clamp(x + 0.1 * x.grad.data.sign(), 0, 1)
    assert F.cross_entropy(model(perturbed), y) > loss and (perturbed - x).abs().max() <= 0.1001


@idiom
def mixed_precision():
    model, x = nn.Linear(4, 3), mt.randn(2, 4)
    with mt.autocast(device_type="cpu", dtype=mt.bfloat16):
        y = model(x)
    assert y.dtype == mt.bfloat16
    with mt.amp.autocast("cpu", enabled=False):
        assert model(x).dtype == mt.float32


@idiom
def scaled_gradients():
    model = nn.Linear(4, 3)
    y = model(mt.randn(2, 4))
    scaler = mt.amp.GradScaler("cpu", enabled=False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = model.bias.detach().clone()
    scaler.scale(y.float().sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    close(model.bias, before - 0.2, 1e-2)


@idiom
def switches():
    mt.set_float32_matmul_precision("high")
    mt.set_float32_matmul_precision("highest")
    mt.use_deterministic_algorithms(False)
    mt.backends.cudnn.benchmark = True
    mt.backends.cuda.matmul.allow_tf32 = False
    assert mt.get_float32_matmul_precision() == "highest" and mt.backends.cudnn.benchmark


@idiom
def low_precision_modules():
    model = nn.Linear(4, 3).to(mt.bfloat16)
    assert model(mt.ones(2, 4, dtype=mt.bfloat16)).dtype == mt.bfloat16
    model = model.to(device="cpu", dtype=mt.float64)
    assert (
        model.weight.dtype == mt.double
        and model.float().weight.dtype == mt.float32
        and model.half().bias.dtype == mt.half
    )


@idiom
def gpu_housekeeping():
    assert mt.cuda.device_count() >= 0 and isinstance(mt.cuda.is_available(), bool)
    if mt.cuda.is_available():
        mt.cuda.synchronize()
    mt.cuda.empty_cache()
    assert isinstance(mt.__version__, str) and mt.get_num_threads() >= 1


@idiom
def shapes_as_tuples():
    x = mt.zeros(2, 3, 4)
    assert x.shape[-1] == 4 and tuple(x.shape) == (2, 3, 4) and x.shape[:-1].numel() == 6
    assert x.shape[1:] == (3, 4) and mt.zeros(x.shape[:1] + (5,)).shape == mt.Size((2, 5)) and x.shape.numel() == 24
    b, t, c = x.size()
    assert (b, t, c) == (2, 3, 4) and [*x.shape] == [2, 3, 4] and x.shape != (2, 3)


@idiom
def keys_of_sets():
    a, b = mt.zeros(1), mt.zeros(1)
    assert len({a, b, a}) == 2 and {a: 1}[a] == 1 and any(a is p for p in [b, a])
    assert mt.float32 in {mt.float32: "f"} and str(mt.float32).endswith(".float32")
