import { useEffect, useState } from 'preact/hooks'
import { Later } from '../../src/ui/demo/later.tsx'
import { isLesson, lessonParameter } from '../../src/ui/lesson/lesson.ts'
import { LessonPanel } from '../../src/ui/lesson/lesson-panel.tsx'
import { PageFoot } from '../../src/ui/parts/page-foot.tsx'
import { PageTop } from '../../src/ui/parts/page-top.tsx'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { ShareLink } from '../../src/ui/parts/share-link.tsx'
import { StatusDot } from '../../src/ui/parts/status-dot.tsx'
import { Term } from '../../src/ui/parts/term.tsx'
import { idleActs } from '../../src/ui/state/acts.ts'
import { troubleAhead } from '../../src/ui/state/trouble.ts'
import { Notice } from '../../src/ui/status/notice.tsx'
import { setSwitches } from '../../src/util/switches.ts'
import { tooLarge } from '../lessons/too-large.ts'
import { meta } from './meta.ts'
import { run } from './network.ts'
import {
  batch,
  choices,
  queryOf,
  type ScheduleName,
  type Settings,
  schedules,
  settingsIn,
} from './settings.ts'
import { microBatchesOf } from './simulated.ts'
import { Stages } from './stages.tsx'
import { type Training, useTraining } from './use-training.ts'
import { WayPanel } from './way-panel.tsx'

const given = settingsIn(location.search)
const hasLesson = isLesson(tooLarge, location.search)
// Pages open their devices once.
setSwitches({ logicalDevices: Math.max(...choices.devices) })
const ahead = troubleAhead({
  isSecureContext: window.isSecureContext,
  hasGpu: Boolean(navigator.gpu),
  origin: location.origin,
  port: location.port,
})
const acts = { ...idleActs, reenter: () => location.reload() }

const loadArticle = async () => (await import('./article.tsx')).SplitArticle

/** The training page, about to train the same network over tabs. */
const overTabs = (parallel: string): string =>
  `../../?${new URLSearchParams({ ...run, batchSize: String(run.batchSize), parallel })}`

/** The page: settings say how the network is split, and each way trains it. */
export function SplitPage() {
  const [settings, setSettings] = useState(given.settings)
  const training = useTraining(settings, ahead === null)
  const query = new URLSearchParams(queryOf(settings))
  if (hasLesson) query.set(lessonParameter, String(tooLarge.number))
  const search = query.size > 0 ? `?${query}` : ''
  useEffect(() => history.replaceState(null, '', `${location.pathname}${search}`), [search])
  const trouble = ahead ?? training.trouble
  return (
    <div class="page">
      <PageTop home="../../" tagline={meta.title} />
      <main>
        {hasLesson && (
          <LessonPanel lesson={tooLarge} facts={{ settings, training }} home="../../" />
        )}
        <div class="about">
          <p>
            {meta.sentence} The <Term word="device">devices</Term> are logical ones of this tab's
            GPU: they share its compute units, so splitting shows its costs here, not its gains. The
            last panel has the step on devices that share nothing.
          </p>
        </div>
        {trouble ? <Notice trouble={trouble} acts={acts} /> : <Status training={training} />}
        <div class="desk">
          <div class="side">
            <Controls
              settings={settings}
              link={`${location.origin}${location.pathname}${search}`}
              onChange={(some) => setSettings((old) => ({ ...old, ...some }))}
            />
          </div>
          <div class="instruments">
            <ul class="legend gantt-legend">
              {(['forward', 'backward', 'optimizer'] as const).map((kind) => (
                <li key={kind} data-kind={kind}>
                  {kind}
                </li>
              ))}
              <li data-kind="idle">idle</li>
            </ul>
            <div class="ways" aria-busy={training.stage === 'compiling'}>
              {training.states.map((state) => (
                <WayPanel key={state.name} state={state} />
              ))}
            </div>
            <Stages settings={settings} />
          </div>
        </div>
        <Later what="the article" load={loadArticle}>
          {(Article) => <Article />}
        </Later>
      </main>
      <PageFoot home="../../" />
    </div>
  )
}

const titles: Record<Training['stage'], string> = {
  compiling: 'Compiling',
  ready: 'Ready',
  training: 'Training',
  failed: 'Failed',
}
const tones = { compiling: 'busy', ready: 'idle', training: 'busy', failed: 'bad' } as const

function Status({ training: { stage, step, error, toggle } }: { training: Training }) {
  const isTraining = stage === 'training'
  const words =
    stage === 'failed'
      ? error
      : stage === 'compiling'
        ? 'Each way has the same network, with the same first weights.'
        : `${step} ${step === 1 ? 'step' : 'steps'} of ${batch} points each`
  return (
    <section class="status" data-tone={tones[stage]} data-stage={stage} aria-label="Status">
      <div class="status-row">
        <StatusDot tone={tones[stage]} />
        <div class="words">
          <h2>
            <span role="status">{titles[stage]}</span>
          </h2>
          <p role={stage === 'failed' ? 'alert' : undefined}>{words}</p>
        </div>
        <button
          type="button"
          class={isTraining ? 'stop' : 'go'}
          disabled={stage === 'compiling' || stage === 'failed'}
          onClick={toggle}
        >
          {isTraining ? 'Pause' : 'Train'}
        </button>
      </div>
    </section>
  )
}

interface ControlsProps {
  readonly settings: Settings
  readonly link: string
  readonly onChange: (some: Partial<Settings>) => void
}

function Controls({ settings, link, onChange }: ControlsProps) {
  const { devices, schedule, split } = settings
  const microBatches = microBatchesOf(settings)
  return (
    <Panel id="settings" title="How to split">
      <div class="settings">
        <div class="field">
          <label for="devices">Devices</label>
          <div class="control">
            <select
              id="devices"
              value={devices}
              onChange={(event) => onChange({ devices: Number(event.currentTarget.value) })}
            >
              {choices.devices.map((count) => (
                <option key={count} value={count}>
                  {count}
                </option>
              ))}
            </select>
          </div>
        </div>
        <div class="field">
          <label for="schedule">Schedule</label>
          <div class="control">
            <select
              id="schedule"
              value={schedule}
              onChange={(event) =>
                onChange({ schedule: event.currentTarget.value as ScheduleName })
              }
            >
              {choices.schedule.map((name) => (
                <option key={name} value={name}>
                  {schedules[name]}
                </option>
              ))}
            </select>
          </div>
        </div>
        <div class="field slider">
          <label for="split">Split size</label>
          <div class="control">
            <input
              id="split"
              type="range"
              min={0}
              max={choices.split.length - 1}
              value={choices.split.indexOf(split as (typeof choices.split)[number])}
              aria-valuetext={`${split} samples, ${microBatches} micro-batches`}
              onInput={(event) =>
                onChange({ split: choices.split[Number(event.currentTarget.value)] })
              }
            />
            <output for="split">
              {split} of {batch} samples: {microBatches}{' '}
              {microBatches === 1 ? 'micro-batch' : 'micro-batches'}
            </output>
          </div>
        </div>
        {given.refused.length > 0 && (
          <p class="error">Not taken from the address: {given.refused.join('; ')}</p>
        )}
        <p class="quiet">
          The same network over {devices} tabs or machines: <a href={overTabs('dp')}>replicas</a>,{' '}
          <a href={overTabs(`pp=${devices}`)}>a pipeline</a> or{' '}
          <a href={overTabs('fsdp')}>sharded layers</a>.
        </p>
        <ShareLink label="This page's link" link={link} />
      </div>
    </Panel>
  )
}
