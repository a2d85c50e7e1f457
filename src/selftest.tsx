import { render } from 'preact'
import './ui/theme/theme.css'
import { countChecks, type OpResult, selfTest } from './check/self-test.ts'
import { ops } from './kernels/index.ts'
import { onOwnGpu } from './own-gpu.ts'
import { type Job, ReportPage } from './ui/page/report-page.tsx'
import { runJob } from './ui/page/run-job.ts'
import { GridTable, toMarkdown } from './ui/parts/grid-table.tsx'

/** The self-test page: every op, variant and case on the visitor's own GPU. `?op=softmax,matmul` limits it. */

const named = new URLSearchParams(location.search).get('op')?.split(',')
const chosen = named ? ops.filter(({ name }) => named.includes(name)) : ops
const heads = ['op', 'variants', 'checked', 'failed']

let job: Job = { stage: 'idle', text: '', done: 0, of: 0 }
let results: OpResult[] = []
let place = ''
let abort = new AbortController()

const show = (next: Partial<Job> = {}) => {
  job = { ...job, ...next }
  render(<SelfTestPage />, document.getElementById('app')!)
}

function start(): void {
  abort = new AbortController()
  results = []
  const { signal } = abort
  runJob(show, signal, async () => {
    await onOwnGpu(async (runtime, where) => {
      place = where
      show({ of: countChecks(runtime, chosen) })
      await selfTest(runtime, chosen, {
        signal,
        onCheck: (op, variant, test) =>
          show({ done: job.done + 1, text: `${op}, ${variant}: ${test}` }),
        onResult: (result) => {
          results = [...results, result]
        },
      })
    })
    const failed = results.flatMap(({ failures }) => failures).length
    return `${job.of} checks of ${results.length} ops: ${failed === 0 ? 'all passed' : `${failed} failed`}.`
  })
}

function SelfTestPage() {
  const failures = results.flatMap((result) => result.failures)
  const rows = results.map(({ op, variants, checked, failures: own }) => [
    op,
    variants.join(', ') || 'no kernel',
    checked,
    own.length,
  ])
  const isOver = job.stage !== 'running' && results.length > 0
  const details = failures.map((failure) => `\n\`\`\`\n${failure}\n\`\`\``).join('\n')
  return (
    <ReportPage
      tagline="Self-test"
      about={`Runs every variant of ${chosen.length} ops on its test cases on this GPU, twice, and compares the results with plain loops in double precision.`}
      verb="Run the self-test"
      job={job}
      isGood={failures.length === 0}
      place={place}
      markdown={isOver ? `${toMarkdown(place, heads, rows)}\n${details}` : ''}
      onStart={start}
      onCancel={() => abort.abort()}
    >
      {failures.length > 0 && (
        <section class="panel" aria-labelledby="failures-title" id="failures">
          <h2 id="failures-title">Failures</h2>
          {failures.map((failure) => (
            <pre key={failure}>{failure}</pre>
          ))}
        </section>
      )}
      {results.length > 0 && (
        <GridTable id="ops" title="Ops" aside={job.stage} heads={heads} rows={rows} />
      )}
    </ReportPage>
  )
}

show()
