import { parseSync } from 'vite'
import { type Callable, isClass, unbound } from './api-arguments.ts'

// The names that signatures have for their arguments, and errors that do not say them.

interface Syntax {
  readonly type: string
  readonly name?: string
  readonly kind?: string
  readonly left?: Syntax
  readonly argument?: Syntax
  readonly expression?: Syntax
  readonly params?: readonly Syntax[]
  readonly value?: Syntax
  readonly key?: Syntax
  readonly body?: unknown
  readonly properties?: readonly Syntax[]
}

const parse = (text: string): Syntax | undefined => {
  const { program, errors } = parseSync('value.js', `(${text})`)
  const [statement] = program.body as unknown as Syntax[]
  return errors.length > 0 ? undefined : statement?.expression?.expression
}

/** A static method's source is a whole one in an object alone, and without names that its class declares. */
function parseMethod(text: string): Syntax | undefined {
  const [method] = parse(`{${text.replaceAll('#', '_')}}`)?.properties ?? []
  return method?.value
}

/** Parameters of functions that were asked for: errors ask for those of one again and again. */
const known = new Map<Callable, readonly Syntax[]>()

/** The parameters of a function, or of a class's constructor. */
function parametersOf(value: Callable): readonly Syntax[] {
  const found = known.get(value) ?? parametersIn(value)
  known.set(value, found)
  return found
}

function parametersIn(value: Callable): readonly Syntax[] {
  const text = Function.prototype.toString.call(unbound.get(value) ?? value)
  const found = parse(text) ?? parseMethod(text)
  if (!isClass(value)) return found?.params ?? []
  const { body = [] } = (found?.body ?? {}) as { body?: readonly Syntax[] }
  const own = body.find(({ kind }) => kind === 'constructor')
  const parent = Object.getPrototypeOf(value)
  if (own) return own.value?.params ?? []
  return parent === Function.prototype ? [] : parametersOf(parent)
}

/** How many arguments a method of a class takes, Infinity for any number; undefined for one that is set on the prototype later. */
export function argumentsOf(owner: Callable, method: string): number | undefined {
  const { body = [] } = (parse(Function.prototype.toString.call(owner))?.body ?? {}) as {
    body?: readonly Syntax[]
  }
  const own = body.find(
    ({ kind, key }) => kind === 'method' && key?.type === 'Identifier' && key.name === method,
  )
  return own && countOf(own.value?.params)
}

/** How many arguments a function takes, Infinity for any number. */
export const argumentCount = (value: Callable): number => countOf(parametersOf(value))

const countOf = (params: readonly Syntax[] = []): number =>
  params.at(-1)?.type === 'RestElement' ? Number.POSITIVE_INFINITY : params.length

/** The name of the argument at a place, from 0; undefined for one without, and where the signature is `...none`. */
export function parameterName(value: Callable, at: number): string | undefined {
  const parameters = parametersOf(value)
  const last = parameters.at(-1)
  const found = parameters[at] ?? (last?.type === 'RestElement' ? last : undefined)
  const plain = found?.type === 'AssignmentPattern' ? found.left : found
  const name = (plain?.type === 'RestElement' ? plain.argument : plain)?.name
  return name === 'none' ? undefined : name
}

/** Errors about what is around a call, whatever its arguments are. */
const aroundIt =
  /works only inside a function|^env: |no parameter has a gradient|this runtime has no WebGPU|no writable origin private/

/** Other names with which errors may begin: of what was given and is called, or of what an argument stands for. */
const otherNames: Readonly<Record<string, readonly string[]>> = {
  checkpoint: ['exp'],
  dataParallel: ['Linear', 'Linear.forward'],
  parallelApply: ['Linear', 'Linear.forward'],
  'parallel.replicate': ['device'],
  'parallel.scatter': ['device'],
  'Tensor.item': ['ModuleBuffer.item'],
  'ReplicaCheck.create': ['compile'],
  paramDigest: ['compile'],
  runtimeOf: ['device'],
  setSwitches: ['switches'],
  'SyncBatchNorm.convertSyncBatchnorm': ['SyncBatchNorm'],
  'SyncBatchNorm.convert': ['SyncBatchNorm', 'convertSyncBatchnorm'],
  loadCheckpoint: ['checkpoint'],
  saveCheckpoint: ['checkpoint'],
  createProcessGroup: ['env'],
  initProcessGroup: ['env'],
}

/** Their errors begin with what was read: a file, a table, an environment. */
const readers = /^(read[A-Z]\w*|load|idxDataset|expandNodeList|rankFromSlurm)$/

/** What is wrong with an error that begins with the name of another function than the one that was called. */
export function misnamed(name: string, error: unknown): string | undefined {
  const { message } = error as Error
  const own = name.slice(name.lastIndexOf('.') + 1)
  const [begin] = message.split(/[:,]/, 1)
  const names = [own, name, ...(otherNames[name] ?? [])].map((one) => one.toLowerCase())
  return names.includes(begin.toLowerCase()) || readers.test(name)
    ? undefined
    : `${name}: begins with another name: ${message}`
}

/** Arguments that errors need not name, as `function argument`, by why. */
export const unnamedArguments: Readonly<Record<string, readonly string[]>> = {
  'is right as a whole: errors name the option, field or item in it': [
    'readCsv source',
    'Subset indices',
    'randomStreamOf key',
    'save state',
    'saveCheckpoint state',
    'packCheckpoint state',
    'TokenDataset options',
    'evaluate options',
    'compileAccumulated options',
    'ModuleDict modules',
    'Gpt config',
    'gpt config',
    'setRngState state',
    'OneCycleLR options',
    'DataParallel options',
    'dataParallel options',
    'pipeline options',
    'Schedule1F1B options',
    'ScheduleGPipe options',
    'ScheduleInterleaved1F1B options',
    'setSwitches inputs',
    'packedAttention sizes',
    'packedRotaryEmbedding sizes',
    'newSubgroupsByEnumeration ranksPerSubgroup',
    'parallel.replicate devices',
    'parallel.scatter devices',
  ],
  'does not fit another argument, which errors name': [
    'allToAllSingle output',
    'allToAllSingle input',
    'allGather tensor',
    'allGatherIntoTensor input',
    'distributed.gather tensor',
    'gatherObject objectGatherList',
    'reduceScatter output',
    'reduceScatterTensor output',
    'scatter tensor',
    'packedAttention qkv',
    'packedRotaryEmbedding qkv',
  ],
  'goes to a function that names it its own way': [
    'compile inputs',
    'compileAccumulated inputs',
    'detectAnomaly types',
    'runEagerly types',
    'checkpoint inputs',
    'dataParallel args',
    'parallelApply args',
    'parallel.gather device',
  ],
  'sizes the result, whose shape errors name': [
    'oneHot numClasses',
    'adaptiveAvgPool1d outputSize',
    'adaptiveAvgPool2d outputSize',
  ],
  'has another name in each overload': ['arange others'],
}

const excepted = new Set(Object.values(unnamedArguments).flat())

/** What is wrong with an error that does not say which argument is: one of a letter begins it or has brackets, because `a` is a word too. */
export function unnamed(name: string, argument: string, error: unknown): string | undefined {
  const { message } = error as Error
  const isNamed = new RegExp(
    argument.length > 1 ? `(?<![\\w$])${argument}(?![\\w$])` : `: ${argument} |\\b${argument}\\[`,
  ).test(message)
  return isNamed || aroundIt.test(message) || excepted.has(`${name} ${argument}`)
    ? undefined
    : `${name}: does not name the argument ${argument}: ${message}`
}
