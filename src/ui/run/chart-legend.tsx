import type { Metric } from '../../trainer/settings/demo-meta.ts'
import { metricDirection, metricName } from '../parts/metric-words.ts'
import {
  type ChartColumn,
  isOfOneRun,
  type LegendRun,
  type PlotKind,
  type Shown,
} from './chart-data.ts'
import { lookOf } from './run-looks.ts'
import { Swatch } from './swatch.tsx'

interface RunLegendProps {
  readonly runs: readonly LegendRun[]
  readonly nameOf: (id: string) => string
  readonly onShow: (id: string, isShown: boolean) => void
}

/** The runs that the chart shows or could show, each with its own line. */
export function RunLegend({ runs, nameOf, onShow }: RunLegendProps) {
  if (runs.length === 0) return null
  return (
    <ul class="legend">
      {runs.map(({ id, slot, isShown, isRunning }) => (
        <li key={id} class="of-run">
          <label>
            <input
              type="checkbox"
              checked={isShown}
              disabled={isRunning}
              onChange={(event) => onShow(id, event.currentTarget.checked)}
            />
            <Swatch slot={slot} /> {nameOf(id)}
          </label>
        </li>
      ))}
    </ul>
  )
}

interface LineLegendProps {
  readonly kind: PlotKind
  readonly metric: Metric
  readonly columns: readonly ChartColumn[]
  /** What a point of the unsmoothed line is; null where there is none. */
  readonly rawWords: string | null
  readonly isSmoothing: boolean
  readonly shown: Shown
  readonly onChange: (shown: Shown) => void
}

/** What the lines of a plot are, and switches for those that can go. */
export function LineLegend(props: LineLegendProps) {
  const { kind, metric, columns, rawWords, isSmoothing, shown, onChange } = props
  const isAlone = isOfOneRun(columns)
  const own = isAlone ? { '--own': `var(${lookOf(columns[0].slot).colour})` } : undefined
  const smoothed = isSmoothing ? ', smoothed' : ''
  const Switch = ({ is, words, title }: { is: keyof Shown; words: string; title?: string }) => (
    <li class={is} title={title}>
      <label>
        <input
          type="checkbox"
          checked={shown[is]}
          onChange={(event) => onChange({ ...shown, [is]: event.currentTarget.checked })}
        />
        {words}
      </label>
    </li>
  )
  if (kind === 'loss')
    return (
      <ul class="legend" data-among={columns.length > 0 && !isAlone} style={own}>
        <li class="smooth">training loss{smoothed}</li>
        <Switch is="testLoss" words="test loss" />
        {/* Last: it comes with the run, and moves none of the others. */}
        {rawWords && <li class="raw">{rawWords}</li>}
      </ul>
    )
  const { sign, words: title } = metricDirection(metric)
  return (
    <ul class="legend" data-among={columns.length > 0 && !isAlone} style={own}>
      <Switch
        is="trainMetric"
        words={`${metricName(metric, 'training')}${smoothed}`}
        title={title}
      />
      <Switch is="testMetric" words={`${metricName(metric)} ${sign}`} title={title} />
    </ul>
  )
}
