import { recall, remember } from '../parts/tab-memory.ts'

const key = 'tabring-name'

/** The name of this tab before a reload, where it is known. */
export const readName = (): string => recall(key)

/** Where it cannot be kept, the tab has a new one after a reload. */
export const keepName = (name: string): boolean => remember(key, name)
