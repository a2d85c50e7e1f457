/** Instruments of the switches `debug` and `trace` for a GPU's programs, loaded where one of them asks for it. */
export { describePlan } from './plan-dump.ts'
export { Profile } from './profile.ts'
export { ValueCheck } from './value-check.ts'
