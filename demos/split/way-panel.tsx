import { formatBytes, formatMs } from '../../src/ui/parts/format.ts'
import { hueOf } from '../../src/ui/parts/hue.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { Strip, type StripSpan } from './strip.tsx'
import type { WayState } from './use-training.ts'
import { type DeviceBytes, ddpSent, idleShare, type WatchedStep, ways } from './ways.ts'

/** One way: what its devices did in the newest watched step, and what they hold. */
export function WayPanel({ state }: { state: WayState }) {
  const { name, devices, loss, stepMs, watched, off } = state
  const { title, words } = ways[name]
  const max = Math.max(...devices.map(({ parameters, plan }) => parameters + plan))
  const ddp = name === 'data' ? ddpSent(devices) : undefined
  const maxSent = Math.max(...devices.map(({ sent }) => sent), ddp ?? 0)
  return (
    <Panel id={name} title={title} aside={`loss ${loss.toFixed(4)}`}>
      <p class="quiet">{words}</p>
      {watched && watched.pieces.length > 0 && (
        <Measured watched={watched} count={devices.length} />
      )}
      <p>
        {formatMs(stepMs)} a step
        {name !== 'one' &&
          (off === 0
            ? '; the same losses as on one device'
            : `; losses within ${off.toExponential(1)} of one device's`)}
      </p>
      <table class="runs">
        <thead>
          <tr>
            <th scope="col">Device</th>
            <th scope="col" class="number">
              Parameters
            </th>
            <th scope="col" class="number">
              Step's plan
            </th>
            <th scope="col" class="number">
              Sent per step
            </th>
            {ddp !== undefined && (
              <th scope="col" class="number">
                by DDP
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {devices.map((device, at) => (
            <tr key={at}>
              <th scope="row" class="hue-text" style={hueOf(at)}>
                {at}
              </th>
              <td class="number">{formatBytes(device.parameters)}</td>
              <td class="number">
                {formatBytes(device.plan)}
                <Bar device={device} max={max} />
              </td>
              <td class="number">
                {formatBytes(device.sent)}
                {ddp !== undefined && <SentBar bytes={device.sent} max={maxSent} />}
              </td>
              {ddp !== undefined && (
                <td class="number">
                  {formatBytes(ddp)}
                  <SentBar bytes={ddp} max={maxSent} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {ddp !== undefined && (
        <p class="quiet">
          DistributedDataParallel copies no parameters from rank to rank before a step, and no rank
          sends more than another: its share of the gradients, and of the updated parameters.
        </p>
      )}
    </Panel>
  )
}

/** Parameters and plan of a device, beside those of the device that has most. */
const Bar = ({ device: { parameters, plan }, max }: { device: DeviceBytes; max: number }) => (
  <span class="bytes-bar" aria-hidden="true">
    <span data-is="parameters" style={{ width: `${(100 * parameters) / max}%` }} />
    <span data-is="plan" style={{ width: `${(100 * plan) / max}%` }} />
  </span>
)

/** Bytes that a device sends, beside the most that one sends in either way. */
const SentBar = ({ bytes, max }: { bytes: number; max: number }) => (
  <span class="bytes-bar" aria-hidden="true">
    <span data-is="sent" style={{ width: `${(100 * bytes) / max}%` }} />
  </span>
)

function Measured({ watched, count }: { watched: WatchedStep; count: number }) {
  const { totalMs, pieces } = watched
  const lanes = Array.from({ length: count }, (_, device): StripSpan[] =>
    pieces
      .filter((piece) => piece.device === `webgpu:${device}`)
      .map(({ phase, microBatch, beginMs, endMs = totalMs }) => ({
        kind: phase,
        label: microBatch === undefined ? '' : String(microBatch),
        fromMs: beginMs,
        toMs: Math.min(totalMs, endMs),
      })),
  )
  const words = `Measured: ${formatMs(totalMs)}, a device idles for ${Math.round(100 * idleShare(watched))} % of forward and backward`
  return (
    <>
      <Strip words={words} lanes={lanes} lengthMs={totalMs} />
      <p class="quiet">{words}.</p>
    </>
  )
}
