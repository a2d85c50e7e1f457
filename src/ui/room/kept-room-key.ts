import { recall, remember } from '../parts/tab-memory.ts'

const key = 'tabring-room-key'

/** The room key of the server that a person gave in this tab; undefined for none. */
export const readRoomKey = (): string | undefined => recall(key) || undefined

/** Keeps it for as long as the tab is open, and returns whether that could be done. Empty: forgets it. */
export const keepRoomKey = (roomKey: string): boolean => remember(key, roomKey)
