import { useEffect, useState } from 'preact/hooks'
import { idleActs } from '../../src/ui/acts.ts'
import { chooseCpu, chosenDevice } from '../../src/ui/device-choice.ts'
import { formatCount } from '../../src/ui/format.ts'
import { Mark } from '../../src/ui/header.tsx'
import { Notice } from '../../src/ui/notice.tsx'
import { SmoothingTool } from '../../src/ui/plot/smoothing.tsx'
import { Swatch } from '../../src/ui/runs/swatch.tsx'
import { Lamp } from '../../src/ui/status-strip.tsx'
import { type Trouble, troubleAhead } from '../../src/ui/trouble.ts'
import { messageOf } from '../../src/util/errors.ts'
import { switchParameters } from '../../src/util/switches.ts'
import { metaOf } from '../experiment.ts'
import { Controls } from './controls.tsx'
import { meta } from './meta.ts'
import { Result } from './result.tsx'
import {
  checkDraft,
  configOf,
  draftFromQuery,
  isExperiment,
  parametersOf,
  type Settings,
} from './settings.ts'
import { slotOf } from './strategies.ts'
import { type Drawn, StrategyChart } from './strategy-chart.tsx'
import { StrategyLog } from './strategy-log.ts'
import { StrategyTable } from './strategy-table.tsx'
import { type RaceState, useRace } from './use-race.ts'

/** What keeps this page from training, and the switches of its address, which stay there. */
function findAhead(): { trouble: Trouble | null; switches: [string, string][] } {
  try {
    const trouble = troubleAhead({
      isSecureContext: window.isSecureContext,
      hasGpu: Boolean(navigator.gpu) || chosenDevice() === 'cpu',
      origin: location.origin,
      port: location.port,
    })
    return { trouble, switches: switchParameters() }
  } catch (thrown) {
    const trouble: Trouble = {
      kind: 'unknown',
      title: 'This address has a switch that cannot be',
      text: messageOf(thrown),
      remedies: ['Correct it in the address, or open the page without it.'],
      detail: null,
    }
    return { trouble, switches: [] }
  }
}
const ahead = findAhead()
const acts = { ...idleActs, reenter: () => location.reload(), useCpu: chooseCpu }

/** The page: settings decide strategies, a race trains them, and all else is drawn from what they tell. */
export function StrategiesPage() {
  const [draft, setDraft] = useState(() => draftFromQuery(location.search))
  const { settings, errors } = checkDraft(draft)
  const race = useRace()
  const isRunning = race.stage === 'running'
  const query = new URLSearchParams([...parametersOf(draft), ...ahead.switches])
  // Commas may stand in a query as they are, and are easier to read.
  const search = query.size > 0 ? `?${query.toString().replaceAll('%2C', ',')}` : ''
  useEffect(() => history.replaceState(null, '', `${location.pathname}${search}`), [search])
  const trouble = ahead.trouble ?? race.trouble
  return (
    <div class="page" data-has-run={race.race !== null}>
      <header class="top">
        <h1>
          <Mark />
          Tabring
        </h1>
        <p class="tagline">{meta.title}</p>
      </header>
      <main>
        <About />
        {trouble ? (
          <Notice trouble={trouble} acts={acts} />
        ) : (
          <Status race={race} settings={settings} />
        )}
        <div class="desk">
          <div class="side">
            <Controls
              draft={draft}
              errors={errors}
              link={`${location.origin}${location.pathname}${search}`}
              isLocked={isRunning}
              onChange={setDraft}
            />
          </div>
          <Instruments race={race} settings={settings} />
        </div>
      </main>
      <footer class="foot">
        <a href="../../">Train</a>
        <a href="../ring/">The ring, message by message</a>
        <a href="../../selftest.html">Self-test</a>
        <a href="../../bench.html">Benchmark</a>
      </footer>
    </div>
  )
}

function About() {
  return (
    <div class="about">
      <p>
        {meta.sentence} The strategies train one after the other in this tab, each rank in a worker
        with a GPU device of its own: at once they would share the GPU, and no time would be a
        strategy's own.
      </p>
      <p>
        <strong>What to expect.</strong> Against samples, the curves of 1, 2 and 4 ranks lie on each
        other: with the same global batch it is the same training, up to rounding. Against seconds
        they differ, and more ranks are not faster here, because the ranks of one machine share its
        GPU. On several machines they would be.
      </p>
    </div>
  )
}

const titles: Record<RaceState['stage'], string> = {
  idle: 'Ready',
  running: 'Training',
  finished: 'Finished',
  stopped: 'Cancelled',
  failed: 'Failed',
}
const tones = { idle: 'idle', running: 'busy', finished: 'good', stopped: 'idle', failed: 'bad' }

/** Where the comparison stands, and the one thing to do now. */
function Status({ race, settings }: { race: RaceState; settings: Settings | null }) {
  const { stage, logs } = race
  const isRunning = stage === 'running'
  const total = logs.reduce((sum, { config }) => sum + config.steps!, 0)
  const done = logs.reduce((sum, { step }) => sum + step, 0)
  const current = race.race?.current
  const strategy =
    current && `${current.strategy.words}, strategy ${logs.indexOf(current) + 1} of ${logs.length}`
  const tone = tones[stage]
  return (
    <section class="status" data-tone={tone} data-stage={stage} aria-label="Status">
      <div class="status-row">
        <Lamp tone={tone} />
        <div class="words">
          {/* Changes with each strategy, which is seldom enough to be read out; steps are below. */}
          <h2>
            <span role="status">
              {isRunning && strategy ? `Training: ${strategy}` : titles[stage]}
            </span>
          </h2>
          <p key={stage} role={stage === 'failed' ? 'alert' : undefined}>
            {stageWords(race, settings)}
          </p>
        </div>
        <button
          type="button"
          class={isRunning ? 'stop' : 'go'}
          disabled={!isRunning && !settings}
          // The second click of a double click on Run lands on Cancel.
          onClick={({ detail }) => {
            if (isRunning && detail < 2) race.cancel()
            else if (!isRunning && settings) race.run(settings)
          }}
        >
          {isRunning ? 'Cancel' : logs.length > 0 ? 'Run again' : 'Run'}
        </button>
      </div>
      {isRunning && (
        <div class="progress">
          <div
            class="bar"
            role="progressbar"
            aria-label="Steps done, of all strategies"
            aria-valuemin={0}
            aria-valuemax={total}
            aria-valuenow={done}
          >
            <div style={{ width: `${(100 * done) / Math.max(1, total)}%` }} />
          </div>
        </div>
      )}
    </section>
  )
}

function stageWords({ stage, error, race }: RaceState, settings: Settings | null): string {
  if (stage === 'failed') return `${race?.current.strategy.words}: ${error}`
  if (stage === 'running' && race) {
    const { stage: is, step, config } = race.current
    return is === 'setup'
      ? 'Loads and compiles'
      : `Step ${formatCount(step)} of ${formatCount(config.steps!)}`
  }
  if (stage === 'stopped') return 'The strategies that ended keep their curves.'
  if (!settings) return 'Correct the settings first.'
  if (stage === 'finished')
    return 'Against samples the charts compare trainings, against seconds how fast they were here.'
  const { strategies, steps } = settings
  return `${strategies.map(({ words }) => words).join('; ')}: ${formatCount(steps)} steps of ${metaOf(settings.experiment).title}.`
}

/** What the strategies tell; before the first run, the strategies that it would have. */
function Instruments({ race, settings }: { race: RaceState; settings: Settings | null }) {
  const [drawn, setDrawn] = useState<Drawn>('losses')
  const [smoothing, setSmoothing] = useState(3)
  const planned =
    settings?.strategies.map(
      (strategy) => new StrategyLog(strategy, configOf(settings, strategy)),
    ) ?? []
  const logs = race.logs.length > 0 ? race.logs : planned
  const demo = race.race?.settings.experiment ?? settings?.experiment ?? 'playground'
  const { metric } = metaOf(isExperiment(demo) ? demo : 'playground')
  const shared = { drawn, metric, logs, smoothing, version: race.version }
  return (
    <>
      <div class="instruments">
        <div class="chart-tools">
          <ul class="strategy-legend" aria-hidden="true">
            {logs.map(({ strategy }) => (
              <li key={strategy.name}>
                <Swatch slot={slotOf(strategy)} />
                {strategy.words}
              </li>
            ))}
          </ul>
          <label class="tool">
            <span>Drawn</span>
            <select
              value={drawn}
              onChange={(event) => setDrawn(event.currentTarget.value as Drawn)}
            >
              <option value="losses">loss</option>
              <option value="tests">held-out {metric.name}</option>
            </select>
          </label>
          <SmoothingTool at={smoothing} onChange={setSmoothing} />
        </div>
        <div class="pair charts">
          <StrategyChart along="samples" {...shared} />
          <StrategyChart along="seconds" {...shared} />
        </div>
      </div>
      <div class="whole">
        <StrategyTable logs={logs} metric={metric} />
        <div class="pair">
          <Result logs={logs} />
          <Explained />
        </div>
      </div>
    </>
  )
}

function Explained() {
  return (
    <section class="panel" aria-labelledby="explained-title">
      <header class="panel-head">
        <h2 id="explained-title">What the strategies are</h2>
      </header>
      <div class="explained">
        <p>
          <strong>1, 2, 4 ranks</strong> cut the same global batch into as many shares, add their
          gradients up over ports between the workers, and make the same step.
        </p>
        <p>
          <strong>Batch × 2, × 4</strong> keep each rank's share as large as one rank's whole batch,
          as people do to use more GPUs. Half or a quarter of the steps, over as many samples:
          another training. The learning rate stays.
        </p>
        <p>
          <strong>No exchange</strong>: two ranks take the shares of each batch that exchanging
          ranks would, and each trains a model of its own. The line is the mean of their losses;
          each model has seen half of the samples.
        </p>
        <p>
          Several machines are compared on the <a href="../../?demo=playground">training page</a>:
          its chart lays runs over each other, by samples and by seconds too.
        </p>
      </div>
    </section>
  )
}
