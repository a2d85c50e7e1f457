import { ArgumentTypeError } from '../../util/errors.ts'
import { isOf, isTexts, quoted } from '../../util/kind-of.ts'
import {
  checkArgument,
  checkChoice,
  checkFlag,
  checkNumber,
  checkOptions,
  isCount,
  isShare,
} from '../../util/options.ts'

const biases = ['none', 'all', 'lora_only'] as const

/** Settings of an adapter: those of `peft.LoraConfig`, with its defaults. */
export interface LoraConfig {
  /**
   * The linear layers that get an adapter: names, which a layer's path is or ends with (`['q_proj', 'v_proj']`); a pattern of whole paths; or
   * `all-linear`: all except the output layer, which is the last one where the model itself holds it.
   */
  targetModules: readonly string[] | string | RegExp
  /** Rank: A is [r, in], B is [out, r]. Default 8. */
  r?: number
  /** What B A x is multiplied by, times r (`useRslora`: times sqrt(r)). Default 8. */
  loraAlpha?: number
  /** Dropout of the adapter's input in training. Default 0. */
  loraDropout?: number
  /** Biases of the model that are trained too: none, all, or those of layers with an adapter. Default `none`. */
  bias?: (typeof biases)[number]
  /** True if the scale is loraAlpha / sqrt(r) and not loraAlpha / r. source: Kalajdzievski, arXiv 2312.03732. Default false. */
  useRslora?: boolean
  /**
   * First values. True: A uniform as in a Linear layer, B zero, so that nothing changes at first; `gaussian`: A normal with deviation 1 / r, B
   * zero; false: both as in a Linear layer. Default true.
   */
  initLoraWeights?: boolean | 'gaussian'
  /** Names of further modules, which are trained and saved as they are, without an adapter. Default none. */
  modulesToSave?: readonly string[]
  /** The base's name on the Hugging Face hub, for programs that load the adapter. */
  baseModelNameOrPath?: string
  /** What the model is for, in PEFT's words; default `CAUSAL_LM`. */
  taskType?: string
}

/** All settings of an adapter. */
export interface LoraSettings extends Required<LoraConfig> {
  /** True if it is not trained. */
  readonly inferenceMode: boolean
}

/** Every setting. errors: `config.invalid`; a TypeError for targets that are neither names nor a pattern. */
export function settingsOf(
  where: string,
  config: LoraConfig,
  inferenceMode = false,
): Readonly<LoraSettings> {
  const given = checkOptions(
    where,
    config,
    {
      targetModules: true,
      r: true,
      loraAlpha: true,
      loraDropout: true,
      bias: true,
      useRslora: true,
      initLoraWeights: true,
      modulesToSave: true,
      baseModelNameOrPath: 'text',
      taskType: 'text',
    },
    'config',
  )
  const { targetModules, initLoraWeights, modulesToSave } = given
  const isPattern = typeof targetModules === 'string' || isOf(targetModules, RegExp)
  if (!isPattern && !isTexts(targetModules))
    throw new ArgumentTypeError(
      `${where}: config: targetModules must be a list of names, a pattern or 'all-linear', got ${quoted(targetModules)}. Name the layers that get an adapter, as ['q_proj', 'v_proj'].`,
    )
  const isAboveZero = (value: number) => Number.isFinite(value) && value > 0
  checkNumber(where, 'r', given.r, isCount, 'a whole number above 0')
  checkNumber(where, 'loraAlpha', given.loraAlpha, isAboveZero, 'a finite number above 0')
  checkNumber(where, 'loraDropout', given.loraDropout, isShare, 'within 0..1')
  checkChoice(where, 'bias', given.bias, biases)
  checkFlag(where, 'useRslora', given.useRslora)
  if (initLoraWeights !== 'gaussian') checkFlag(where, 'initLoraWeights', initLoraWeights)
  const areNames = modulesToSave === undefined || isTexts(modulesToSave)
  checkArgument(where, 'modulesToSave', modulesToSave, areNames, 'a list of names')
  return {
    r: 8,
    loraAlpha: 8,
    loraDropout: 0,
    bias: 'none',
    useRslora: false,
    initLoraWeights: true,
    modulesToSave: [],
    baseModelNameOrPath: '',
    taskType: 'CAUSAL_LM',
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    targetModules,
    inferenceMode,
  }
}

/** What B A x is multiplied by. */
export const scaleOf = ({ r, loraAlpha, useRslora }: LoraSettings): number =>
  loraAlpha / (useRslora ? Math.sqrt(r) : r)
