import { useMemo } from 'preact/hooks'
import { formatBytes } from '../parts/format.ts'
import { Panel } from '../parts/panel.tsx'
import type { Run } from '../state/run.ts'
import { useFewRanks } from './few-ranks.tsx'
import { useJsMemory } from './js-memory.ts'

const bytes = (value: number | null) => (value === null ? '–' : formatBytes(value))

/** Paths of neighbouring layers: the first and the last. */
function layerWords(layers: readonly string[] = []): string {
  if (layers.length === 0) return '–'
  return layers.length < 3 ? layers.join(', ') : `${layers[0]} … ${layers.at(-1)}`
}

/** Memory of each rank, as its worker reports it about every second, and what JavaScript holds in this tab. */
export function MemoryView({ run, hues }: { run: Run | null; hues: readonly string[] }) {
  const newest = run?.sampledSteps.at(-1)
  const js = useJsMemory(newest !== undefined && run?.end === null)
  const { shown, more } = useFewRanks(
    newest?.map(({ memory }) => memory.deviceBytes ?? memory.plannedBytes) ?? [],
    run?.rank ?? 0,
    'largest',
  )
  return useMemo(() => {
    const held = run?.held
    const hasLayers = held?.some(({ layers }) => layers !== undefined)
    // Ranks that compute on the CPU have no device.
    const hasDevices = newest?.some(({ memory }) => memory.deviceBytes !== null)
    return (
      <Panel id="memory" title="Memory by rank">
        {newest ? (
          <>
            <table class="runs">
              <thead>
                <tr>
                  <th scope="col">Rank</th>
                  {hasLayers && <th scope="col">Layers</th>}
                  {held && (
                    <th scope="col" class="number">
                      Parameters
                    </th>
                  )}
                  <th scope="col" class="number">
                    Step's plan
                  </th>
                  {hasDevices && (
                    <th scope="col" class="number">
                      Device in use
                    </th>
                  )}
                </tr>
              </thead>
              <tbody>
                {shown.map((rank) => (
                  // Ranks never change places within a run.
                  <tr key={rank}>
                    <th scope="row" style={{ color: hues[rank] }}>
                      {rank}
                    </th>
                    {hasLayers && <td>{layerWords(held?.[rank]?.layers)}</td>}
                    {held && <td class="number">{bytes(held[rank].parameterBytes)}</td>}
                    <td class="number">{bytes(newest[rank].memory.plannedBytes)}</td>
                    {hasDevices && <td class="number">{bytes(newest[rank].memory.deviceBytes)}</td>}
                  </tr>
                ))}
              </tbody>
            </table>
            {more}
            {js && (
              <p class="quiet">
                JavaScript in this tab: {formatBytes(js.page)} in the page,{' '}
                {formatBytes(js.workers)} in its workers.
              </p>
            )}
            <p class="quiet">
              {held && !hasLayers && 'Each rank has a part of every layer. '}
              Plan: the step's intermediates, inputs and outputs.
              {hasDevices && " In use: all buffers of the worker's device."}
            </p>
          </>
        ) : (
          <p class="quiet">What each rank's device and worker hold, once training starts.</p>
        )}
      </Panel>
    )
  }, [run?.held, newest, js, shown.length, hues.join()])
}
