import { render } from 'preact'
import './ui/theme/theme.css'
import { type BesideRow, besideTable, besideWords, geometricRatios } from './bench-tables.ts'
import type { Runtime } from './graph/memory/runtime.ts'
import { compareProducts } from './measure/compare-products.ts'
import { measureFmaPeak } from './measure/fma-peak.ts'
import {
  formatProblem,
  operandsOf,
  type Problem,
  taskOf,
  timeMatmul,
  type VariantTime,
} from './measure/matmul.ts'
import { ownProduct } from './measure/own-product.ts'
import { type PeerKey, peers } from './measure/peers/peers.ts'
import type { MakeProduct } from './measure/product.ts'
import {
  forms,
  geometricMean,
  type LayerShape,
  parseShapes,
  problemOf,
  trainingShapes,
} from './measure/training-shapes.ts'
import { onOwnGpu } from './own-gpu.ts'
import { type Job, ReportPage } from './ui/page/report-page.tsx'
import { runJob } from './ui/page/run-job.ts'
import { formatNumber } from './ui/parts/format.ts'
import { GridTable, toMarkdown } from './ui/parts/grid-table.tsx'

/**
 * The benchmark page: the matmul menu on this GPU, then its best beside other libraries.
 *
 * `?shapes=1024x384x1024` (rows x inputs x outputs) and `?forms=nt` limit it; `?peers=jax` or `?peers=none` leaves libraries out.
 */

interface Row {
  readonly product: string
  readonly best: VariantTime
  /** What a run takes that is not tuned. */
  readonly fixed: VariantTime
}

const parameters = new URLSearchParams(location.search)
const wantedShapes = parameters.get('shapes')
const wantedForms = parameters.get('forms')?.split(',')
const wantedPeers = parameters.get('peers')?.split(',')
const peerKeys = (Object.keys(peers) as PeerKey[]).filter(
  (key) => wantedPeers?.includes(key) ?? true,
)
const heads = ['product', 'best', 'GFLOP/s', 'of peak', 'untuned', 'untuned of peak']

let job: Job = { stage: 'idle', text: '', done: 0, of: 0 }
let rows: Row[] = []
let beside: BesideRow[] = []
let peak = Number.NaN
let place = ''
let abort = new AbortController()

const show = (next: Partial<Job> = {}) => {
  job = { ...job, ...next }
  render(<BenchPage />, document.getElementById('app')!)
}

function shapesFor(isSoftware: boolean): readonly LayerShape[] {
  if (!wantedShapes) return trainingShapes(isSoftware)
  const shapes = parseShapes(wantedShapes)
  if (shapes) return shapes
  throw new Error(
    `shapes: expected rows x inputs x outputs such as 1024x384x1024, got "${wantedShapes.slice(0, 80)}". Correct the address.`,
  )
}

function start(): void {
  abort = new AbortController()
  rows = []
  beside = []
  peak = Number.NaN
  const { signal } = abort
  runJob(show, signal, async () => {
    await onOwnGpu(async (runtime, where) => {
      place = where
      const problems = shapesFor(runtime.facts.isSoftware).flatMap((shape) =>
        forms
          .filter((form) => wantedForms?.includes(form) ?? true)
          .map((form) => problemOf(shape, form)),
      )
      show({ of: problems.length + 1, text: 'Measuring multiply-adds alone' })
      peak = await measureFmaPeak(runtime, signal)
      show({ done: 1 })
      for (const problem of problems) {
        const product = formatProblem(problem)
        const times = await timeMatmul(runtime, problem, {
          signal,
          minMs: 10,
          onVariant: (name) => show({ text: `${product}, ${name}` }),
        })
        const best = times.reduce((a, b) => (b.ms < a.ms ? b : a))
        const fixed = times.find(({ isPreferred }) => isPreferred) ?? best
        rows = [...rows, { product, best, fixed }]
        if (peerKeys.length > 0) await compare(runtime, problem, best.variant, signal)
        show({ done: job.done + 1 })
      }
    })
    return `${rows.length} products; ${formatNumber(peak)} GFLOP/s of multiply-adds alone${geometricRatios(beside, peerKeys)}. Other load on the machine lowers the numbers.`
  })
}

/** The best variant of a product beside the other libraries, all of them called as a user would call them. */
async function compare(
  runtime: Runtime,
  problem: Problem,
  variant: string,
  signal: AbortSignal,
): Promise<void> {
  const product = formatProblem(problem)
  show({ text: `${product} against ${peerKeys.map((key) => peers[key].name).join(' and ')}` })
  const makers = {
    tabring: (...[task, a, b]: Parameters<MakeProduct>) => ownProduct(runtime, task, a, b, variant),
    ...Object.fromEntries(peerKeys.map((key) => [key, peers[key].make])),
  }
  const rounds = await compareProducts(makers, taskOf(problem), ...operandsOf(problem), { signal })
  beside = [...beside, { product, rounds }]
}

const share = ({ gflops }: VariantTime): string => `${((100 * gflops) / peak).toFixed(1)} %`

/** Narrow screens may break a product's name between its sizes. */
const breakable = (product: string): string => product.replaceAll('x', 'x\u200b')

function BenchPage() {
  const cells: (string | number)[][] = rows.map(({ product, best, fixed }) => [
    product,
    best.variant,
    formatNumber(best.gflops),
    share(best),
    fixed.variant,
    share(fixed),
  ])
  if (rows.length > 0) {
    const meanOf = (pick: (row: Row) => VariantTime) =>
      geometricMean(rows.map((row) => pick(row).gflops))
    const best = meanOf((row) => row.best)
    const fixed = meanOf((row) => row.fixed)
    const percent = (gflops: number) => `${((100 * gflops) / peak).toFixed(1)} %`
    cells.push(['geometric mean', '', formatNumber(best), percent(best), '', percent(fixed)])
  }
  const other = besideTable(beside, peerKeys)
  const peakWords = `peak of multiply-adds alone: ${formatNumber(peak)} GFLOP/s`
  const isOver = job.stage !== 'running' && rows.length > 0
  return (
    <ReportPage
      tagline="Benchmark"
      about="Times every matrix-product kernel on this GPU at training sizes, checks each result first, and compares it with the GPU's peak of multiply-adds, jax-js and TensorFlow.js."
      verb="Run the benchmark"
      job={job}
      isGood={true}
      place={place}
      markdown={
        isOver
          ? [
              toMarkdown(`${place}; ${peakWords}`, heads, cells),
              other && toMarkdown(besideWords(peerKeys), other.heads, other.cells),
            ]
              .filter(Boolean)
              .join('\n\n')
          : ''
      }
      onStart={start}
      onCancel={() => abort.abort()}
    >
      {rows.length > 0 && (
        <GridTable
          id="products"
          title="Matrix products"
          aside={peakWords}
          heads={heads}
          rows={cells.map(([product, ...rest]) => [breakable(String(product)), ...rest])}
        />
      )}
      {other && (
        <GridTable
          id="beside"
          title="Against other libraries"
          aside={besideWords(peerKeys)}
          heads={other.heads}
          rows={other.cells.map(([product, ...rest]) => [breakable(product), ...rest])}
        />
      )}
    </ReportPage>
  )
}

show()
