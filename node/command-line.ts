import type { DeviceType } from '../src/util/device.ts'

/** `--nproc_per_node` and the like are taken as torchrun takes them: `_` for `-` in an option's name. */
export function withDashes(argument: string): string {
  if (!argument.startsWith('--')) return argument
  const [name, ...value] = argument.split('=')
  return [name.replaceAll('_', '-'), ...value].join('=')
}

/** The text of Commander's complaint, on one line and in our form, up to a full stop. */
export function oneLine(text: string): string {
  const line = text
    .replace(/^error: /, '')
    .replace(/\s*\n\s*/g, ' ')
    .replace(/\.? (\(Did you mean .*\))$/, '. $1')
    .trim()
  return /[.)]$/.test(line) ? line : `${line}.`
}

/** The switch that `--device` stands for; undefined without the flag. */
export const cpuSwitch = (device: DeviceType | undefined): boolean | undefined =>
  device && device === 'cpu'
