import { type AnyRuntime, checkRuntime } from '../graph/memory/runtime.ts'
import type { CausalLmConfig } from '../nn/causal-lm-config.ts'
import { ShapeError } from '../util/errors.ts'
import { checkList, checkNumber, checkOptions, isCount } from '../util/options.ts'

export interface GenerateOptions {
  /** Default 128. */
  maxNewTokens?: number
  /** What logits are divided by; 0, the default, takes the most probable token. */
  temperature?: number
  /** Number of the most probable tokens among which one is drawn; default: all. */
  topK?: number
  /** The most probable tokens that together have this probability are those among which one is drawn; default 1. */
  topP?: number
  /** What logits of tokens that occurred are divided by, or multiplied by where they are negative; default 1. */
  repetitionPenalty?: number
  /** Tokens that end the text; they are not returned. */
  stopTokens?: readonly number[]
  /** Of the draws, where `temperature` is above 0; default 0. */
  seed?: number
  /** True if a model with adapters answers as its base; default false. */
  disableAdapter?: boolean
  /** An open device, instead of the page's own. */
  runtime?: AnyRuntime
}

const known = {
  maxNewTokens: true,
  temperature: true,
  topK: true,
  topP: true,
  repetitionPenalty: true,
  stopTokens: true,
  seed: true,
  disableAdapter: 'flag',
  runtime: true,
} as const

/** The options, with defaults. errors: `config.invalid`; `shape.mismatch` for no tokens, and for more than the model has positions for. */
export function checkGenerate(
  { vocabSize, maxPositionEmbeddings }: CausalLmConfig,
  tokens: readonly number[],
  options: GenerateOptions,
) {
  const where = 'generate'
  checkOptions(where, options, known)
  const { maxNewTokens = 128, stopTokens = [], seed = 0, runtime } = options
  const isToken = (one: number) => Number.isInteger(one) && one >= 0 && one < vocabSize
  checkList(where, 'tokens', tokens, isToken, `tokens from 0 to ${vocabSize - 1}`)
  checkList(where, 'stopTokens', stopTokens, isToken, `tokens from 0 to ${vocabSize - 1}`)
  const { temperature = 0, topK = vocabSize, topP = 1, repetitionPenalty = 1 } = options
  const isFrom0 = (value: number) => value >= 0 && Number.isFinite(value)
  const isAbove0 = (value: number) => value > 0 && Number.isFinite(value)
  const isSeed = (value: number) => Number.isSafeInteger(value) && value >= 0
  const check = (name: string, value: number, isValid: (value: number) => boolean, range: string) =>
    checkNumber(where, name, value, isValid, range)
  check('maxNewTokens', maxNewTokens, isCount, 'a whole number above 0')
  check('temperature', temperature, isFrom0, 'a finite number of at least 0')
  check('topK', topK, isCount, 'a whole number above 0')
  check('topP', topP, (p) => p > 0 && p <= 1, 'above 0 and at most 1')
  check('repetitionPenalty', repetitionPenalty, isAbove0, 'a finite number above 0')
  check('seed', seed, isSeed, 'a whole number from 0 to 2^53 - 1')
  if (runtime !== undefined) checkRuntime(where, runtime)
  const choice = { temperature, topK, topP, repetitionPenalty }
  if (tokens.length > 0 && tokens.length + maxNewTokens <= maxPositionEmbeddings)
    return { maxNewTokens, stopTokens, seed, runtime, ...choice }
  throw new ShapeError(
    'shape.mismatch',
    `${where}: expected 1 or more tokens, and up to ${maxPositionEmbeddings} with maxNewTokens of the options, got ${tokens.length} and ${maxNewTokens}. Cut the text.`,
  )
}

export type GenerateSettings = ReturnType<typeof checkGenerate>

/** How a token is chosen. */
export type TokenChoice = Pick<
  GenerateSettings,
  'temperature' | 'topK' | 'topP' | 'repetitionPenalty'
>
