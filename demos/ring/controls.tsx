import { formatBytes, formatCount } from '../../src/ui/parts/format.ts'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { ShareLink } from '../../src/ui/parts/share-link.tsx'
import {
  algorithmChoices,
  hasMachines,
  type NumberSetting,
  numberSettings,
  type RingSettings,
} from './settings.ts'
import { algorithmWords } from './words.ts'

interface ControlsProps {
  readonly settings: RingSettings
  readonly link: string
  /** What the address had that could not be taken. */
  readonly refused: readonly string[]
  readonly onChange: (change: Partial<RingSettings>) => void
}

/** What decides the run, and the link that has it. */
export function Controls({ settings, link, refused, onChange }: ControlsProps) {
  const slider = (key: NumberSetting['key']) => (
    <Slider
      setting={numberSettings.find((one) => one.key === key)!}
      settings={settings}
      onChange={onChange}
    />
  )
  return (
    <Panel id="settings" title="Ranks and links">
      <div class="settings">
        {slider('ranks')}
        {slider('length')}
        <div class="field">
          <label for="algorithm">Algorithm</label>
          <div class="control">
            <select
              id="algorithm"
              value={settings.algorithm}
              onChange={(event) =>
                onChange({ algorithm: event.currentTarget.value as RingSettings['algorithm'] })
              }
            >
              {algorithmChoices.map((one) => (
                <option
                  key={one}
                  value={one}
                  disabled={one === 'hierarchical' && settings.ranks < 3}
                >
                  {algorithmWords[one]}
                </option>
              ))}
            </select>
          </div>
        </div>
        {slider('latencyMs')}
        {slider('rateMb')}
        {slider('lossPercent')}
        {slider('machines')}
        {slider('seed')}
        <div class="field">
          <label for="flip">Flip one bit</label>
          <div class="control">
            <input
              id="flip"
              type="checkbox"
              checked={settings.flip > 0}
              onChange={(event) => onChange({ flip: Number(event.currentTarget.checked) })}
            />
            <span class="unit">of one message</span>
          </div>
        </div>
        {refused.length > 0 && (
          <p class="refusal" role="alert">
            Ignored in the address: {refused.join('; ')}.
          </p>
        )}
        <ShareLink label="This run's link" link={link} />
      </div>
    </Panel>
  )
}

interface SliderProps {
  readonly setting: NumberSetting
  readonly settings: RingSettings
  readonly onChange: (change: Partial<RingSettings>) => void
}

/** A slider over the stops; a value between two of them, from an address, stands at the nearer one. */
function Slider({ setting: { key, label, unit, stops }, settings, onChange }: SliderProps) {
  const value = settings[key]
  const nearest = stops.reduce(
    (best, stop, at) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? at : best),
    0,
  )
  const words = wordsOf(key, unit, settings)
  return (
    <div class="field slider">
      <label for={key}>{label}</label>
      <div class="control">
        <input
          id={key}
          type="range"
          min={0}
          max={stops.length - 1}
          step={1}
          value={nearest}
          aria-valuetext={words}
          onInput={(event) => onChange({ [key]: stops[Number(event.currentTarget.value)] })}
        />
        <output for={key}>{words}</output>
      </div>
    </div>
  )
}

function wordsOf(key: NumberSetting['key'], unit: string, settings: RingSettings): string {
  const value = settings[key]
  if (key === 'length') return `${formatCount(value)} (${formatBytes(4 * value)})`
  if (key !== 'machines') return `${value} ${unit}`.trim()
  return hasMachines(settings) ? `${value}, fast inside` : 'one per rank'
}
