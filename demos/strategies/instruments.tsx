import { useState } from 'preact/hooks'
import { SmoothingTool } from '../../src/ui/plot/smoothing.tsx'
import { Swatch } from '../../src/ui/run/swatch.tsx'
import { metaOf } from '../experiments.ts'
import { Result } from './result.tsx'
import { configOf, experimentOf, type Settings } from './settings.ts'
import { slotOf } from './strategies.ts'
import { type Drawn, StrategyChart } from './strategy-chart.tsx'
import { StrategyLog } from './strategy-log.ts'
import { StrategyTable } from './strategy-table.tsx'
import { Times } from './times.tsx'
import type { RaceState } from './use-race.ts'
import { Explained } from './words.tsx'

/** Curves and figures of the strategies; before the first run, the strategies that it would have. */
export function Instruments({ race, settings }: { race: RaceState; settings: Settings | null }) {
  const [drawn, setDrawn] = useState<Drawn>('losses')
  const [smoothing, setSmoothing] = useState(3)
  const planned =
    settings?.strategies.map(
      (strategy) => new StrategyLog(strategy, configOf(settings, strategy)),
    ) ?? []
  const logs = race.logs.length > 0 ? race.logs : planned
  const shown = race.race?.settings ?? settings
  const { metric } = metaOf(experimentOf(shown?.experiment ?? '').demo)
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
            <span>Show</span>
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
        <Times races={race.races} />
        <StrategyTable logs={logs} metric={metric} settings={shown} />
        <div class="pair">
          <Result logs={logs} />
          <Explained />
        </div>
      </div>
    </>
  )
}
