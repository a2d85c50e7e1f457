import { cpus, loadavg } from 'node:os'

/** The day of the measurement, for headings and names of files. */
export const today = (): string => new Date().toISOString().slice(0, 10)

/** How many processes wait for the machine now, this one among them. */
export const loadNow = (): string => loadavg()[0].toFixed(1)

/** The machine in words; `load` is `loadNow` of the moment that `when` names. */
export const machineLine = (when: string, load = loadNow()): string =>
  `${cpus()[0]?.model.trim() || 'unknown CPU'}, ${cpus().length} cores, load average ${when} ${load}`
