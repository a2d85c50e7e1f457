import { CausalLm } from '../nn/causal-lm.ts'
import { PeftModel } from '../nn/lora/peft-model.ts'
import { checkArgument } from '../util/options.ts'
import { RandomStream } from '../util/random.ts'
import { CachedModel, type Traced } from './cached-model.ts'
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
  model: CausalLm | PeftModel<CausalLm>,
  tokens: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  const base = model instanceof PeftModel ? model.baseModel : model
  const isOne = base instanceof CausalLm
  checkArgument('generate', 'model', model, isOne, 'a CausalLm, or one with adapters')
  const settings = checkGenerate(base.config, tokens, options)
  const isAlone = model instanceof PeftModel && options.disableAdapter === true
  const traced: Traced = (fn) => (isAlone ? model.disableAdapter(fn) : fn())
  return continued(base, traced, [...tokens], settings)
}

async function* continued(
  model: CausalLm,
  traced: Traced,
  tokens: readonly number[],
  { maxNewTokens, stopTokens, seed, runtime, ...choice }: GenerateSettings,
): AsyncGenerator<number, void, void> {
  const cached = await CachedModel.create(model, traced, tokens.length + maxNewTokens, runtime)
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
