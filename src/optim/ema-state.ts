import type { Parameter } from '../graph/trace/parameter.ts'
import type { StoredTensor } from '../graph/trace/stored-tensor.ts'
import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import { isOf, isRecord, quoted } from '../util/kind-of.ts'
import { countElements, formatShape, type Shape, sameShape } from '../util/shape.ts'

type Floats = Float32Array<ArrayBuffer>

export interface AveragedTensor {
  readonly shape: Shape
  readonly data: Float32Array<ArrayBuffer>
}

/** Averages on the host, and the number of updates in them. */
export interface EmaState {
  readonly num_updates: number
  /** By parameter index, like an optimizer's state; in older files by parameter name. */
  readonly average: Readonly<Record<string, AveragedTensor>>
  /** With `useBuffers`: by buffer index. */
  readonly buffers?: Readonly<Record<string, AveragedTensor>>
}

export const malformed = (problem: string) =>
  new TabringError(
    'data.malformed',
    `ema.loadStateDict: ${problem} Load averages saved for this model.`,
  )

/** Which of these tensors a saved key means: an index, or a name in files that were saved by names. */
function indexOf(key: string, tensors: readonly StoredTensor[]): number {
  if (/^\d+$/.test(key)) return Number(key)
  const named = (isIt: (name: string) => boolean) =>
    tensors.flatMap(({ name }, i) => (isIt(name) ? [i] : []))
  const same = named((name) => name === key)
  const found = same.length > 0 ? same : named((name) => name.endsWith(`.${key}`))
  if (found.length < 2) return found[0] ?? -1
  throw malformed(`the name "${clipped(key)}" belongs to ${found.length} parameters.`)
}

/** What this rank holds of the saved tensors, by index. errors: `data.malformed` for one that is of no tensor here, of two, or of another shape. */
export function averagesByIndex(
  saved: Readonly<Record<string, AveragedTensor>>,
  tensors: readonly StoredTensor[],
): Map<number, Floats> {
  if (!isRecord(saved)) throw malformed(`expected averages by index, got ${quoted(saved)}.`)
  const found = new Map<number, Floats>()
  for (const [key, entry] of Object.entries(saved)) {
    const index = indexOf(key, tensors)
    const tensor = tensors[index]
    if (!tensor || found.has(index)) {
      const named = tensor ? 'a tensor already listed' : `none of the ${tensors.length} tensors`
      throw malformed(`"${clipped(key)}" names ${named}.`)
    }
    const { stateShape, name } = tensor
    const { shape, data } = isRecord(entry) ? entry : {}
    const isShape = Array.isArray(shape) && shape.every(Number.isInteger)
    if (!isShape || !isOf(data, Float32Array))
      throw malformed(
        `average ${index} must be { shape, data: Float32Array }, got ${quoted(entry)}.`,
      )
    if (!sameShape(shape, stateShape) || data.length !== countElements(stateShape)) {
      const own = `${index}${name && ` ("${clipped(name)}")`}`
      throw malformed(
        `average ${own} must be ${formatShape(stateShape)}, got ${clipped(formatShape(shape))} of ${data.length}.`,
      )
    }
    found.set(index, tensor.partOf(data as Floats) as Floats)
  }
  return found
}

/** The whole averages, of what each rank holds of them. errors: `peer.*`. */
export async function wholeAverages(
  tensors: readonly StoredTensor[],
  own: ReadonlyMap<number, Floats>,
): Promise<Map<number, AveragedTensor>> {
  const whole = new Map<number, AveragedTensor>()
  for (const [index, tensor] of tensors.entries()) {
    const data = own.get(index)
    if (!data) continue
    const contents = (await tensor.stateOf(tensor.isReleased ? undefined : data)) as Floats
    whole.set(index, { shape: tensor.stateShape, data: contents })
  }
  return whole
}

/** The position of each parameter. errors: `graph.misuse` for one that comes twice. */
export function positionsOf(parameters: readonly Parameter[]): Map<Parameter, number> {
  const positions = new Map(parameters.map((parameter, i) => [parameter, i]))
  if (positions.size === parameters.length) return positions
  const twice = parameters.find((parameter, i) => parameters.indexOf(parameter) !== i)
  throw new TabringError(
    'graph.misuse',
    `ExponentialMovingAverage: averaged must have distinct parameters, got "${twice?.name}" twice. Pass model.parameters().`,
  )
}
