/* SPDX-License-Identifier: GPL-2.0 */
/* Packets that the splitter has put into a processor's backlog, in order among themselves. */
#ifndef LINE_H
#define LINE_H

/* In tc_index: the packet comes out of the backlog of the CPU whose number is below it. */
#define OUT_OF_LINE 0x8000

#endif
