import { useMemo } from 'preact/hooks'
import { useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { inkOn, percent, signed, Tile } from './images.tsx'
import './learned.css'

export { WhoseModel } from '../../src/ui/demo/whose-model.tsx'

const side = 28
const ink = inkOn(255)

/** Pictures of a model once a run has one: its first layer, and the samples that it gets wrong. */
export const Learned = (props: ViewProps) => (
  <>
    <Filters {...props} />
    <Mistakes {...props} />
  </>
)

/** The first images of this rank's part of a step; nothing before one. */
export function PartImages({ part }: { part: NonNullable<ViewProps['part']> }) {
  const { images, labels } = part as Partial<Record<'images' | 'labels', Uint8Array>>
  if (!images || !labels) return null
  return (
    <ul class="part-images" aria-label="Some digits of your part">
      {Array.from(labels, (label, i) => (
        <li key={i} class="glows">
          <Tile
            values={images.subarray(side * side * i, side * side * (i + 1))}
            height={side}
            width={side}
            scale={ink}
            label={`A ${label}`}
          />
        </li>
      ))}
    </ul>
  )
}

function Filters(props: ViewProps) {
  const { answer, failure } = useQuery(props, 'filters', null, { everyMs: 1000 })
  const shown = useMemo(() => {
    if (!answer) return null
    const { of, count, height, width, weights } = answer as unknown as Record<
      'of' | 'count' | 'height' | 'width',
      number
    > & { weights: Float32Array }
    const each = height * width
    const max = weights.reduce((max, weight) => Math.max(max, Math.abs(weight)), 0)
    return {
      title: `${count === of ? `All ${of}` : `${count} of the ${of}`} filters of the first layer`,
      height,
      width,
      scale: signed(max),
      filters: Array.from({ length: count }, (_, i) => weights.subarray(each * i, each * (i + 1))),
    }
  }, [answer])
  if (!shown) return failure === null ? null : <p role="alert">{failure}</p>
  const { title, filters, ...tile } = shown
  return (
    <div>
      <h3>{title}</h3>
      <div class="tiles">
        {filters.map((values, i) => (
          <Tile key={i} {...tile} values={values} label={`Filter ${i}`} />
        ))}
      </div>
      <p class="quiet">Light: ink here raises the unit's output. Dark: ink here lowers it.</p>
    </div>
  )
}

interface MistakesAnswer {
  readonly checked: number
  readonly wrong: number
  readonly images: Uint8Array
  readonly labels: Uint8Array
  readonly predicted: Uint8Array
  readonly probabilities: Float32Array
}

function Mistakes(props: ViewProps) {
  const { run } = props
  // As often as the run itself looks at held-out samples.
  const step = `${run!.accuracy.length} ${run!.end?.kind}`
  const { answer, failure } = useQuery(props, 'mistakes', null, { everyMs: 1000, step })
  const shown = useMemo(() => {
    if (!answer) return null
    const { images, ...rest } = answer as unknown as MistakesAnswer
    const each = side * side
    const pictures = Array.from(rest.labels, (_, i) => images.subarray(each * i, each * (i + 1)))
    return { ...rest, pictures }
  }, [answer])
  if (!shown) return failure === null ? null : <p role="alert">{failure}</p>
  const { checked, wrong, pictures, labels, predicted, probabilities } = shown
  return (
    <div>
      <h3>
        {wrong === 0
          ? `No mistakes among ${checked} held-out digits`
          : `The worst of ${wrong} ${wrong === 1 ? 'mistake' : 'mistakes'} among ${checked} held-out digits`}
      </h3>
      <ul class="mistakes">
        {pictures.map((values, i) => (
          <li key={i}>
            <Tile values={values} height={side} width={side} scale={ink} label={`A ${labels[i]}`} />
            <span>
              {labels[i]} taken for {predicted[i]}
              <br />
              <span class="quiet">with {percent(probabilities[i])}</span>
            </span>
          </li>
        ))}
      </ul>
    </div>
  )
}
