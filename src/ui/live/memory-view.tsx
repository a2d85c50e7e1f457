import { useMemo } from 'preact/hooks'
import { formatBytes } from '../format.ts'
import { Panel } from '../panel.tsx'
import type { Run } from '../state.ts'

const bytes = (value: number | null) => (value === null ? '–' : formatBytes(value))

/** Memory of each rank, as its worker tells it about every second. */
export function MemoryView({ run }: { run: Run | null }) {
  const newest = run?.sampledSteps.at(-1)
  return useMemo(
    () => (
      <Panel id="memory" title="Memory by rank">
        {newest ? (
          <>
            <table class="runs">
              <thead>
                <tr>
                  <th scope="col">Rank</th>
                  <th scope="col" class="number">
                    Step's plan
                  </th>
                  <th scope="col" class="number">
                    Device in use
                  </th>
                  <th scope="col" class="number">
                    JS heap
                  </th>
                </tr>
              </thead>
              <tbody>
                {newest.map(({ memory }, rank) => (
                  // Ranks never change places within a run.
                  <tr key={rank}>
                    <th scope="row">{rank}</th>
                    <td class="number">{bytes(memory.plannedBytes)}</td>
                    <td class="number">{bytes(memory.deviceBytes)}</td>
                    <td class="number">{bytes(memory.heapBytes)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            <p class="quiet">
              Plan: the step's intermediates, inputs and outputs. In use: all buffers of the
              worker's device. Heap: of the worker, where the browser tells.
            </p>
          </>
        ) : (
          <p class="quiet">What each rank's device and worker hold, once steps are made.</p>
        )}
      </Panel>
    ),
    [newest],
  )
}
