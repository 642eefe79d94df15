"""Warehouse: the robotic warehouse (RWARE)."""

from epymarl_fairtest.tasks.warehouse.rules import WarehouseTask

TASK = WarehouseTask
