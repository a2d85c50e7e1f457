import type { Parameter } from '../graph/trace/parameter.ts'
import type { StoredTensor } from '../graph/trace/stored-tensor.ts'
import { TabringError } from '../util/errors.ts'
import { type Shape, sameShape } from '../util/shape.ts'

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

const malformed = (problem: string) =>
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
  throw malformed(`the name "${key}" belongs to ${found.length} parameters.`)
}

/** The saved tensors by index. errors: `data.malformed` for one that is of no tensor here, of two, or of another shape. */
export function averagesByIndex(
  saved: Readonly<Record<string, AveragedTensor>>,
  tensors: readonly StoredTensor[],
): Map<number, AveragedTensor> {
  const found = new Map<number, AveragedTensor>()
  for (const [key, entry] of Object.entries(saved)) {
    const index = indexOf(key, tensors)
    const tensor = tensors[index]
    if (!tensor || found.has(index)) {
      const named = tensor ? 'a tensor already listed' : `none of the ${tensors.length} tensors`
      throw malformed(`"${key}" names ${named}.`)
    }
    const { shape, name } = tensor
    if (!sameShape(entry.shape, shape)) {
      const own = `${index}${name && ` ("${name}")`}`
      throw malformed(
        `average ${own} must be [${shape.join(', ')}], got [${entry.shape.join(', ')}].`,
      )
    }
    found.set(index, entry)
  }
  return found
}

/** The position of each parameter. errors: `graph.misuse` for one that comes twice. */
export function positionsOf(parameters: readonly Parameter[]): Map<Parameter, number> {
  const positions = new Map(parameters.map((parameter, i) => [parameter, i]))
  if (positions.size === parameters.length) return positions
  const twice = parameters.find((parameter, i) => parameters.indexOf(parameter) !== i)
  throw new TabringError(
    'graph.misuse',
    `ExponentialMovingAverage: "${twice?.name}" occurs twice in the parameters. Pass model.parameters().`,
  )
}
