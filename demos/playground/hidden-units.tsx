import { useLayoutEffect, useRef } from 'preact/hooks'
import { useInView } from '../../src/ui/demo/use-in-view.ts'
import { useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { pictureOfLeanings } from './leaning-colours.ts'
import { type Activation, activations, partsOf } from './networks.ts'

/** Samples along each edge of a unit's picture. */
const side = 20
const everyMs = 1000
/** Pictures of one row, at most, and their width on the page; more, and smaller ones, where a layer has many units. */
const grids = [
  { maxUnits: 64, columns: 8, widthPx: 38 },
  { maxUnits: Number.POSITIVE_INFINITY, columns: 16, widthPx: 19 },
]
/** Pixels between pictures. */
const gap = 2

/** What each hidden unit of the run's model gives over the plane, as it learns; asked for only where it can be seen. */
export function HiddenUnits(props: ViewProps) {
  const { run, apart } = props
  const [place, isInView] = useInView<HTMLElement>()
  const { answer, failure } = useQuery(props, 'hidden', { side }, { everyMs, isIdle: !isInView })
  const { activation, units } = partsOf(run!.config!.model)
  const layers = answer?.layers as readonly Float32Array[] | undefined
  return (
    <section class="hidden-units" ref={place}>
      <h3>Hidden units{apart.length > 0 && ` of rank ${run!.rank}`}</h3>
      <p class="quiet">What each unit outputs across the plane: blue is low, orange is high.</p>
      <div class="layers">
        {units.map((count, layer) => (
          <figure key={layer}>
            <Layer values={layers?.[layer] ?? null} count={count} activation={activation}>
              Layer {layer + 1}: {count} {activations[activation]} units
            </Layer>
          </figure>
        ))}
      </div>
      {failure !== null && <p role="alert">{failure}</p>}
    </section>
  )
}

interface LayerProps {
  /** shape: [side², units], first row y = -1 */
  values: Float32Array | null
  count: number
  activation: Activation
  children: preact.ComponentChildren
}

function Layer({ values, count, activation, children }: LayerProps) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const grid = grids.find(({ maxUnits }) => count <= maxUnits)!
  const columns = Math.min(grid.columns, count)
  const rows = Math.ceil(count / columns)
  useLayoutEffect(() => {
    const context = canvas.current!.getContext('2d')!
    context.clearRect(0, 0, context.canvas.width, context.canvas.height)
    for (let unit = 0; unit < count; unit++) {
      const x = (unit % columns) * (side + gap)
      const y = Math.floor(unit / columns) * (side + gap)
      context.putImageData(pictureOf(values, unit, count, activation), x, y)
    }
  }, [values, count, activation, columns])
  return (
    <>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`What each of the ${count} units outputs across the plane`}
        width={columns * (side + gap) - gap}
        height={rows * (side + gap) - gap}
        style={{ width: `${columns * grid.widthPx}px` }}
      />
      <figcaption class="quiet">{children}</figcaption>
    </>
  )
}

/** From -1 to 1: tanh as it is, a sigmoid around its middle, and ReLU as a share of the unit's most. */
function pictureOf(
  values: Float32Array | null,
  unit: number,
  count: number,
  activation: Activation,
): ImageData {
  const at = (i: number) => values?.[i * count + unit] ?? 0
  if (!values) return pictureOfLeanings(side, () => 0)
  if (activation === 'tanh') return pictureOfLeanings(side, at)
  if (activation === 'sigmoid') return pictureOfLeanings(side, (i) => 2 * at(i) - 1)
  let max = 0
  for (let i = 0; i < side * side; i++) max = Math.max(max, at(i))
  return pictureOfLeanings(side, (i) => at(i) / (max || 1))
}
