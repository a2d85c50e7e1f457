import { malformed } from '../data/malformed.ts'
import { isPlain, quoted } from '../util/kind-of.ts'

/** How its authors want text of a model to be generated, from generation_config.json; special tokens also from config.json. */
export interface GenerationConfig {
  readonly bosTokenId?: number
  /** Each of them ends a text. */
  readonly eosTokenIds: readonly number[]
  readonly padTokenId?: number
  readonly doSample?: boolean
  readonly temperature?: number
  readonly topK?: number
  readonly topP?: number
  readonly repetitionPenalty?: number
  readonly maxNewTokens?: number
}

const numbers = {
  bosTokenId: 'bos_token_id',
  padTokenId: 'pad_token_id',
  temperature: 'temperature',
  topK: 'top_k',
  topP: 'top_p',
  repetitionPenalty: 'repetition_penalty',
  maxNewTokens: 'max_new_tokens',
} as const

/** `json` and `config`: the contents of generation_config.json, undefined where there is none, and of config.json. errors: `data.malformed`. */
export function readGenerationConfig(json: unknown, config: unknown): GenerationConfig {
  const file = 'generation_config.json'
  if (json !== undefined && !isPlain(json)) throw malformed(file, 'an object', quoted(json))
  const all = { ...(isPlain(config) && tokensIn(config)), ...json }
  const isToken = (id: unknown) => Number.isSafeInteger(id)
  const eos = [all['eos_token_id'] ?? []].flat()
  if (!eos.every(isToken))
    throw malformed(file, 'eos_token_id, a token or a list of tokens', quoted(all['eos_token_id']))
  const found: Record<string, unknown> = { eosTokenIds: eos }
  for (const [name, key] of Object.entries(numbers)) {
    const value = all[key] ?? undefined
    if (value === undefined) continue
    if (typeof value !== 'number') throw malformed(file, `${key}, a number`, quoted(value))
    found[name] = value
  }
  const sample = all['do_sample'] ?? undefined
  if (sample !== undefined && typeof sample !== 'boolean')
    throw malformed(file, 'do_sample, true or false', quoted(sample))
  if (sample !== undefined) found['doSample'] = sample
  return found as unknown as GenerationConfig
}

const tokensIn = (config: Readonly<Record<string, unknown>>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(config).filter(([key]) => /^(bos|eos|pad)_token_id$/.test(key)))
