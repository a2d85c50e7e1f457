import { CausalLm } from '../nn/causal-lm.ts'
import { checkArgument } from '../util/options.ts'
import { RandomStream } from '../util/random.ts'
import { CachedModel } from './cached-model.ts'
import { chooseToken } from './choose-token.ts'
import { checkGenerate, type GenerateOptions, type GenerateSettings } from './generate-options.ts'

/**
 * Continues tokens one by one, and yields each as soon as it is there.
 *
 * order: the penalty of repetitions, then temperature, topK and topP, as in transformers. The same seed gives the same tokens on one device.
 * cost: two compilations before the first token; then one run a token, which reads all weights once. Keys and values of all tokens are stored.
 * errors: `config.invalid`; `shape.mismatch` for no tokens, and for more than the model has positions for.
 */
export function generate(
  model: CausalLm,
  tokens: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  checkArgument('generate', 'model', model, model instanceof CausalLm, 'a CausalLm')
  const settings = checkGenerate(model.config, tokens, options)
  return continued(model, [...tokens], settings)
}

async function* continued(
  model: CausalLm,
  tokens: readonly number[],
  { maxNewTokens, stopTokens, seed, runtime, ...choice }: GenerateSettings,
): AsyncGenerator<number, void, void> {
  const cached = await CachedModel.create(model, tokens.length + maxNewTokens, runtime)
  try {
    const stream = new RandomStream(seed, 0)
    const seen = new Set(tokens)
    let logits = await cached.read(tokens)
    for (let made = 1; ; made++) {
      const token = chooseToken(logits, seen, choice, stream)
      if (stopTokens.includes(token)) return
      yield token
      if (made === maxNewTokens) return
      seen.add(token)
      logits = await cached.read([token])
    }
  } finally {
    cached.destroy()
  }
}
