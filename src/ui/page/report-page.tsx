import type { ComponentChildren } from 'preact'
import { CopyButton } from '../parts/copy-button.tsx'
import { PageFoot } from '../parts/page-foot.tsx'
import { PageTop } from '../parts/page-top.tsx'
import { ProgressBar } from '../parts/progress-bar.tsx'
import { StatusDot } from '../parts/status-dot.tsx'

/** How far a page's one job has come. */
export interface Job {
  readonly stage: 'idle' | 'running' | 'finished' | 'stopped' | 'failed'
  /** Where it stands, in one sentence. */
  readonly text: string
  readonly done: number
  readonly of: number
}

interface ReportPageProps {
  readonly tagline: string
  readonly about: string
  readonly verb: string
  readonly job: Job
  /** True if what was found is good; colours the light of a finished job. */
  readonly isGood: boolean
  /** What it was measured on: adapter, browser, date. */
  readonly place: string
  /** The result as a Markdown table; empty while there is none. */
  readonly markdown: string
  readonly onStart: () => void
  readonly onCancel: () => void
  readonly children: ComponentChildren
}

const titles: Record<Job['stage'], string> = {
  idle: 'Ready',
  running: 'Running',
  finished: 'Finished',
  stopped: 'Cancelled',
  failed: 'Failed',
}

/** A page with one button: starts a job, shows its progress and its result, and hands the result over as text. */
export function ReportPage(props: ReportPageProps) {
  const { tagline, about, verb, job, isGood, place, markdown, onStart, onCancel } = props
  const { stage, text, done, of } = job
  const isRunning = stage === 'running'
  const tone =
    stage === 'finished' && isGood
      ? 'good'
      : isRunning
        ? 'busy'
        : stage === 'idle' || stage === 'stopped'
          ? 'idle'
          : 'bad'
  return (
    <div class="page">
      <PageTop home="./" tagline={tagline} />
      <main>
        <section class="status" data-tone={tone} data-stage={stage} aria-label="Status">
          <div class="status-row">
            <StatusDot tone={tone} />
            <div class="words">
              <h2>
                <span role="status">{titles[stage]}</span>
              </h2>
              <p>{text || about}</p>
            </div>
            <button
              type="button"
              class={isRunning ? 'stop' : 'go'}
              onClick={isRunning ? onCancel : onStart}
            >
              {isRunning ? 'Cancel' : verb}
            </button>
          </div>
          {isRunning && (
            <div class="progress">
              <ProgressBar label="Progress" done={done} of={of} />
            </div>
          )}
        </section>
        {place && <p class="quiet">{place}</p>}
        {props.children}
        {markdown && <Markdown text={markdown} />}
      </main>
      <PageFoot home="./" />
    </div>
  )
}

/** The result as text, with a button that copies it. */
function Markdown({ text }: { text: string }) {
  return (
    <section class="panel" aria-labelledby="markdown-title">
      <header class="panel-head">
        <h2 id="markdown-title">As a Markdown table</h2>
        <CopyButton text={text} label="Copy table" field="markdown" />
      </header>
      <textarea
        id="markdown"
        class="mono"
        readOnly
        rows={6}
        value={text}
        aria-labelledby="markdown-title"
      />
    </section>
  )
}
